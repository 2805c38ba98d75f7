"""``deedbook verify``: check ledgers with a reader that knows the format and not the writer."""

import click

from deedbook.kernel import read_workspace
from deedbook.schema import Schemas, data_folder
from deedbook.verify import verify_file

from .common import json_option
from .ledgers import all_files, session_file
from .output import as_json, say

UNSOUND = 4


@click.command("verify")
@click.argument("ledger", required=False)
@json_option
@click.pass_obj
def command(workspace: str, ledger: str | None, *, as_json_: bool) -> int:
    """Check LEDGER (a session's id, or a file), or every ledger of the workspace: bytes, then structure."""
    places = [session_file(workspace, ledger)] if ledger else all_files(read_workspace(workspace))
    schemas = Schemas.load(data_folder("schemas"))
    reports = [verify_file(place, schemas=schemas) for place in places]
    if as_json_:
        as_json({"schema_version": "v1", "reports": [report.as_json() for report in reports]})
    else:
        for report in reports:
            for line in report.lines():
                say(line)
        if not reports:
            say("no ledgers yet")
    return 0 if all(report.sound for report in reports) else UNSOUND
