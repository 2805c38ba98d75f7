"""A server that does what a test says, declared in a workspace, and looked at as `deedbook mcp` looks."""

import json
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from deedbook.format.errors import Ok
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.workspace.workspace import survey_workspace
from deedbook_tool_mcp.server_listing import survey_server, write_listing
from deedbook_tool_mcp.servers import declared_servers

ROGUE = Path(__file__).with_name("rogue.py")
ANY = {"type": "object"}
SCHEMAS = Schemas.load(data_folder("schemas"))


def tool(name: str, description: str = "Does something.", **more: Any) -> dict[str, Any]:
    """Return a tool as a server lists it."""
    return {"name": name, "description": description, "inputSchema": ANY, **more}


@attrs.define
class Rogue:
    """The server `rogue` of a lab's workspace."""

    lab: Any
    plan: Path
    _session: Any = None

    def does(self, **do: Any) -> "Rogue":
        """Let it list one tool for each name, which behaves so; declare it, and look at it."""
        self.lists(*map(tool, do), do=do)
        return self.declared().pinned()

    def lists(self, *tools: Any, **more: Any) -> "Rogue":
        """Let it list *tools* from now on."""
        before = json.loads(self.plan.read_text()) if self.plan.exists() else {}
        self.plan.write_text(json.dumps({**before, "tools": list(tools), **more}))
        return self

    def declared(self, **more: Any) -> "Rogue":
        """Declare it in the workspace."""
        entry = {"command": [sys.executable, str(ROGUE), str(self.plan)], **more}
        self.lab.settings(servers={"rogue": entry})
        return self

    def pinned(self, name: str = "rogue") -> "Rogue":
        """Look at what it offers, and keep that."""
        workspace, _ = survey_workspace(self.lab.path)
        listing = survey_server(workspace, declared_servers(workspace)[name], self.lab.catalogue(), SCHEMAS)
        with Folder.at(self.lab.path) as root:
            write_listing(root, listing)
        return self

    def call(self, name: str, /, **args: Any) -> Any:
        """Call one of its tools in the one session of the test."""
        if self._session is None:
            self._session = self.lab.session()
        return self._session.call(f"rogue/{name}", args)

    def text(self, name: str, /, **args: Any) -> str:
        """Call one of its tools, which has to answer with a text."""
        found = self.call(name, **args)
        assert isinstance(found, Ok), found
        return found.value["content"][0]["text"]

    def fails(self, name: str, /, **args: Any) -> Any:
        """Call one of its tools, which has to fail; return the error."""
        return self.call(name, **args).error

    def heard(self, method: str) -> list[Any]:
        """Return what it heard of that method, from its first start on."""
        lines = [json.loads(line) for line in Path(f"{self.plan}.log").read_text().splitlines()]
        return [line for line in lines if line.get("method") == method]

    @property
    def starts(self) -> list[int]:
        """The process ids of its starts, without that of looking at it."""
        lines = [json.loads(line) for line in Path(f"{self.plan}.log").read_text().splitlines()]
        return [line["started"] for line in lines if "started" in line][1:]


@pytest.fixture
def rogue(lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Rogue:
    """Return a server that a test tells what to do."""
    return Rogue(lab, tmp_path_factory.mktemp("rogue") / "plan.json")
