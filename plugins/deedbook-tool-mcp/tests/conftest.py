"""A workspace served to a client of the official SDK, in one process, and an MCP server that does what a test says."""

import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from mcp import Client, MCPError

from deedbook.format.errors import Ok
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.workspace.workspace import survey_workspace
from deedbook_tool_mcp.server_listing import survey_server, write_listing
from deedbook_tool_mcp.servers import declared_servers
from deedbook_tool_mcp.serving.server import build_server
from deedbook_tool_mcp.serving.sessions import Connection, ConnectionSessions

ROGUE = Path(__file__).with_name("rogue.py")
ANY = {"type": "object"}
SCHEMAS = Schemas.load(data_folder("schemas"))


def tool(name: str, description: str = "Does something.", **more: Any) -> dict[str, Any]:
    """Return a tool as a server lists it."""
    return {"name": name, "description": description, "inputSchema": ANY, **more}


class Served:
    """A lab's workspace as the server of one client of it, or the gateway in front of its server *upstream*."""

    def __init__(self, lab: Any, *, wait: float = 0.0, client: str = "mcp", upstream: str = "") -> None:
        self.lab = lab
        self.sessions = ConnectionSessions(lab.kernel(), client, upstream)
        self.wait = wait

    def to(self, work: Callable[[Client], Awaitable[Any]], mode: str = "2026-07-28", **options: Any) -> Any:
        """Do *work* with a client that is connected, end its session, and return what it came to."""

        async def main() -> tuple[Any, MCPError | None]:
            server = build_server(self.sessions, self.wait, lambda _ctx: Connection("local", "test"))
            async with Client(server, mode=mode, **options) as client:
                try:
                    return await work(client), None
                except MCPError as problem:  # else a group of exceptions would come out
                    return None, problem

        try:
            result, problem = anyio.run(main)
        finally:
            self.sessions.end(Connection("local", "test"), "the test is over")
        if problem is not None:
            raise problem
        return result

    def call(self, name: str, args: Any = None, mode: str = "2026-07-28", **options: Any) -> Any:
        """Make one call and return its result."""
        return self.to(lambda client: client.call_tool(name, args or {}), mode, **options)

    @property
    def session(self) -> str:
        """The id of the last session."""
        return self.lab_sessions()[-1]

    def lab_sessions(self) -> list[str]:
        """Return the ids of all sessions, the last one written at the end."""
        places = sorted(self.lab.state.glob("sessions/*/.events.jsonl"), key=lambda place: place.stat().st_mtime_ns)
        return [place.parent.name for place in places]

    def types(self) -> list[str]:
        """Return what the last session recorded."""
        return self.lab.types(self.session)


@pytest.fixture
def serve(lab: Any) -> Iterator[Callable[..., Served]]:
    """Serve the lab's workspace."""
    made: list[Served] = []

    def make(**options: Any) -> Served:
        made.append(Served(lab, **options))
        return made[-1]

    yield make
    for each in made:
        each.sessions.close()


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
