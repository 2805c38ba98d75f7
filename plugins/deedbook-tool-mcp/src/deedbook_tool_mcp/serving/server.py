"""The MCP server for one client of a workspace: its description, and the stdio transport."""

import signal
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Final

import anyio
from mcp.server import CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions

from .calls import CallService, ToolService
from .requests import RequestService, find_methods
from .sessions import Connection, ConnectionSessions
from .stdio import message_streams
from .tools import FRESH_MS
from .turns import Context

NAME: Final = "deedbook"
INSTRUCTIONS: Final = (
    "Every call is judged by policies and recorded. A result that is an error with the code NEEDS_HUMAN has done "
    "nothing: a person has to approve it; then make the same call again."
)
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOCAL: Final = "local"


def build_server(
    sessions: ConnectionSessions, patience: float, find_connection: Callable[[Context], Connection]
) -> Server[Any]:
    """Return the server for *sessions*; see `CallService`."""
    calls = CallService(sessions, patience, find_connection)
    service = ToolService(calls, sessions.tools)
    about = sessions.document["servers"][sessions.upstream]["about"] if sessions.upstream else {}
    server = _Server(
        about.get("name") or sessions.upstream or NAME,
        version=about.get("version") or version("deedbook-tool-mcp"),
        instructions="\n\n".join(filter(None, (about.get("instructions"), INSTRUCTIONS))),
        cache_hints={"tools/list": CacheHint(FRESH_MS, "private")},
        get_tool_input_schema=sessions.tools.find_schema,
        on_list_tools=service.list_tools,
        on_call_tool=service.call_tool,
    )
    if sessions.upstream:
        RequestService(calls, sessions.upstream).register(server, find_methods(sessions))
    return server


class _Server(Server[Any]):
    """A server that announces changes of the lists of the server behind it; its own list of tools does not change."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **more: Any
    ) -> InitializationOptions:
        """Return how the server describes itself."""
        given = notification_options or NotificationOptions(prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(given, *args, **more)


def serve_stdio(sessions: ConnectionSessions, patience: float, source: Any, sink: Any) -> None:
    """Serve the client that writes to *source* and reads from *sink*, until it disconnects or a signal stops this."""

    async def serve() -> None:
        here = Connection(_LOCAL, "stdio")
        server = build_server(sessions, patience, lambda _ctx: here)
        async with message_streams(source, sink) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    try:
        anyio.run(run_until_stopped, serve)
    finally:
        sessions.close()


async def run_until_stopped(serve: Callable[[], Awaitable[None]], stop: Callable[[], None] | None = None) -> None:
    """Run *serve* until it ends or a signal arrives; a signal calls *stop*, or cancels *serve* without one."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
                async for _ in signals:
                    (stop or group.cancel_scope.cancel)()

        group.start_soon(watch)
        await serve()
        group.cancel_scope.cancel()
