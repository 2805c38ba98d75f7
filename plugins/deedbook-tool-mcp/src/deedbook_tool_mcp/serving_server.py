"""The MCP server of one client of a workspace: what it says of itself, and its two ways to be reached."""

import signal
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Final

import anyio
from mcp.server import CacheHint
from mcp.server.lowlevel import Server

from deedbook import Kernel

from .serving_calls import Context, Counter
from .serving_sessions import Connection, Desk
from .serving_stdio import message_streams
from .serving_tools import FRESH_MS

NAME: Final = "deedbook"
INSTRUCTIONS: Final = (
    "Every call is judged by policies and recorded. A result that is an error with the code NEEDS_HUMAN has done "
    "nothing: a person has to approve it; then make the same call again."
)
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOCAL: Final = "local"


def build(desk: Desk, patience: float, connected: Callable[[Context], Connection]) -> Server[Any]:
    """Return the server at a *desk*; see `Counter`."""
    counter = Counter(desk, patience, connected)
    return Server(
        NAME,
        version=version("deedbook-tool-mcp"),
        instructions=INSTRUCTIONS,
        cache_hints={"tools/list": CacheHint(FRESH_MS, "private")},
        get_tool_input_schema=desk.shelf.schema,
        on_list_tools=counter.list_tools,
        on_call_tool=counter.call_tool,
    )


def serve_stdio(kernel: Kernel, client: str, patience: float, source: Any, sink: Any) -> None:
    """Serve the one client that writes to *source* and reads from *sink* until it is gone, or a signal ends it."""
    desk = Desk(kernel, client)

    async def serve() -> None:
        here = Connection(_LOCAL, "stdio")
        server = build(desk, patience, lambda _ctx: here)
        async with message_streams(source, sink) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    try:
        anyio.run(until_told, serve)
    finally:
        desk.close()


async def until_told(serve: Callable[[], Awaitable[None]], stop: Callable[[], None] | None = None) -> None:
    """Serve, until that ends by itself or a signal ends it: by calling *stop*, or else at once."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            with anyio.open_signal_receiver(*ENDING) as signals:
                async for _ in signals:
                    (stop or group.cancel_scope.cancel)()

        group.start_soon(watch)
        await serve()
        group.cancel_scope.cancel()
