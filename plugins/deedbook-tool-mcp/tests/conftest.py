"""A workspace served to a client of the official SDK, in one process: what the tests of the server share."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from deedbook_tool_mcp.serving.server import build_server
from deedbook_tool_mcp.serving.sessions import Connection, ConnectionSessions


class Served:
    """A lab's workspace as the server of one client of it."""

    def __init__(self, lab: Any, *, wait: float = 0.0, client: str = "mcp") -> None:
        self.lab = lab
        self.sessions = ConnectionSessions(lab.kernel(), client)
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
        places = sorted(self.lab.state.glob("sessions/*/.events.jsonl"), key=lambda place: place.stat().st_mtime_ns)
        return places[-1].parent.name

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
