"""The client of the official conformance suite: a server is declared, looked at, and its tools called through the door.

Usage: `client.py URL`, as the suite starts it. Every tool is called once, with arguments that fit its schema.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from deedbook.charter.instances import instances
from deedbook.format.errors import Err
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder, foreign
from deedbook.kernel import open_kernel
from deedbook.plugins.plugins import discover
from deedbook.workspace.workspace import load_workspace, survey_workspace
from deedbook_tool_mcp.server_listing import survey_server, write_listing
from deedbook_tool_mcp.servers import declared_servers


def fitting(schema):
    """Return arguments that fit: the suite's own numbers and words where it has some."""
    fits = foreign(schema, place="tool").valid
    parts = schema.get("properties", {}).items()
    usual = {name: 5 if part.get("type") in ("number", "integer") else "x" for name, part in parts}
    found = (value for value in (usual, *instances(schema)) if isinstance(value, dict) and fits(value))
    return next(found, {})


def main():
    print("scenario", os.environ.get("MCP_CONFORMANCE_SCENARIO"), file=sys.stderr)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / ".system").mkdir()
        settings = {"schema_version": "v1", "servers": {"it": {"url": sys.argv[1], "timeout_ms": 20000}}}
        (root / ".system" / "deedbook.yaml").write_text(json.dumps(settings))
        workspace, _ = survey_workspace(root)
        listing = survey_server(
            workspace, declared_servers(workspace)["it"], discover(), Schemas.load(data_folder("schemas"))
        )
        with Folder.at(root) as folder:
            write_listing(folder, listing)
        abilities = load_workspace(root).abilities
        with open_kernel(root) as kernel:
            session = kernel.session()
            ended = [session.call(name, fitting(ability.schema_in)) for name, ability in sorted(abilities.items())]
            session.end(ok=True, reason="the scenario is over")
    for each in ended:
        print(each, file=sys.stderr)
    return 1 if any(isinstance(each, Err) for each in ended) else 0


if __name__ == "__main__":
    sys.exit(main())
