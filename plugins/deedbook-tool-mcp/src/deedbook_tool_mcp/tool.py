"""Tools and other requests of an MCP server as handlers of abilities; abilities share the connection to a server."""

import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from deedbook.contract import AbilityDeclaration, Ctx, Failed, HandlerSpec, Host, Json, Object, Secret

from .client.peers import PEER, Peer
from .requests import ELICIT, REQUESTS

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .client.connection import Connection
    from .client.pool import ConnectionPool

KEY: Final = "deedbook-tool-mcp"
LISTING_SECONDS: Final = 120.0
_GIVEN: Final = {
    "type": "object",
    "additionalProperties": {
        "type": ["string", "object"],
        "required": ["secret"],
        "properties": {"secret": {"type": "string", "minLength": 1}},
        "additionalProperties": False,
    },
}
_REACHED: Final = {
    "server": {"type": "string", "minLength": 1},
    "command": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
    "cwd": {"type": "string"},
    "env": _GIVEN,
    "url": {"type": "string", "minLength": 1},
    "headers": _GIVEN,
}
_REACHING: Final = {"type": "object", "oneOf": [{"required": ["command"]}, {"required": ["url"]}]}
SETTINGS: Final = {
    **_REACHING,
    "required": ["server"],
    "properties": {**_REACHED, "tool": {"type": "string"}, "pinned": {"type": "object"}},
    "additionalProperties": False,
}
REQUEST_SETTINGS: Final = {
    **_REACHING,
    "required": ["server", "request"],
    "properties": {**_REACHED, "request": {"enum": list(REQUESTS)}},
    "additionalProperties": False,
}
CONTENT: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"enum": ["text", "image", "audio", "resource", "resource_link"]},
            "text": {"type": "string"},
            "data": {"type": "string"},
            "mimeType": {"type": "string"},
            "uri": {"type": "string"},
            "resource": {"type": "object", "required": ["uri"], "properties": {"uri": {"type": "string"}}},
        },
    },
}
GIVES: Final = {
    "type": "object",
    "required": ["content"],
    "properties": {"content": CONTENT, "structuredContent": {}},
    "additionalProperties": False,
}


def _check_effects(declared: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    if declared.effects is None:
        yield "/effects", "say what a call of it does: a server's word for it is not taken"


def _check_tool(declared: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    yield from _check_effects(declared)
    for key in ("tool", "pinned"):
        if key not in declared.settings:
            yield f"/with/{key}", "is missing; declare the server under servers:, then its tools are abilities"


class McpTool:
    """Calls one tool of the server in its settings, if the tool is unchanged since its review."""

    spec = HandlerSpec(settings=SETTINGS, gives=GIVES, effects="none", interruptible=True, check=_check_tool)

    def __init__(self, settings: Object, host: Host) -> None:
        self._tool: str = settings.get("tool", "")
        self._pinned: Object = settings.get("pinned", {})
        self._server = _Server({key: settings[key] for key in settings if key not in ("tool", "pinned")}, host)

    def __call__(self, args: Any, ctx: Ctx) -> Json | Awaitable[Json]:
        """Call the tool; raises `Failed`."""
        pool, connection = self._server.find_connection(PEER.get())
        started = threading.Event()
        call = connection.call(self._tool, self._pinned, args, started, _build_progress(ctx))
        made: Json | Awaitable[Json] = _wait_or_await(
            pool.submit(call), ctx.remaining(), f"{connection.name}: {self._tool}", started
        )
        return made

    def listing(self) -> dict[str, Any]:
        """Return what the server lists now: ``about`` and ``tools``; raises `Failed`."""
        pool, connection = self._server.find_connection(None)
        found: dict[str, Any] = _wait_or_await(
            pool.submit(connection.listing()), LISTING_SECONDS, connection.name, threading.Event()
        )
        return found


class McpRequest:
    """Sends one other request of the protocol to the server, or asks the client's person for the server."""

    spec = HandlerSpec(
        settings=REQUEST_SETTINGS, gives={"type": "object"}, effects="none", interruptible=True, check=_check_effects
    )

    def __init__(self, settings: Object, host: Host) -> None:
        self._method = settings["request"]
        self._server = _Server({key: settings[key] for key in settings if key != "request"}, host)

    def __call__(self, args: Any, ctx: Ctx) -> Json | Awaitable[Json]:
        """Send the request with *args* as its parameters; raises `Failed`."""
        peer, started = PEER.get(), threading.Event()
        if peer is None and REQUESTS[self._method].for_client:
            why = f"{self._method} concerns the connection of one client: deedbook mcp serve --upstream passes it on"
            raise Failed("NOT_AVAILABLE", why)
        made: Json | Awaitable[Json]
        if peer is not None and self._method == ELICIT:
            started.set()
            made = _wait_or_await(peer.ask_person(args), ctx.remaining(), "the client's person", started)
            return made
        pool, connection = self._server.find_connection(peer)
        work = connection.request(self._method, args, started, _build_progress(ctx))
        made = _wait_or_await(pool.submit(work), ctx.remaining(), f"{connection.name}: {self._method}", started)
        return made


class _Server:
    """The server in the settings of a handler; its connections open at their first use."""

    def __init__(self, settings: Mapping[str, Any], host: Host) -> None:
        self._settings, self._host = settings, host
        self._secrets = _read_secrets(settings, host)
        self._name = json.dumps(dict(settings), sort_keys=True)
        self._lock = threading.Lock()
        self._shared: tuple[ConnectionPool, Connection] | None = None

    def find_connection(self, peer: Peer | None) -> "tuple[ConnectionPool, Connection]":
        """Return the pool and the connection for *peer*; without one, the connection that all calls share."""
        from .client.pool import ConnectionPool  # noqa: PLC0415 - event loops are imported at the first call

        if peer is not None:
            pool = self._host.share(KEY, ConnectionPool)
            return pool, pool.get_peer_connection(self._name, peer, partial(self._build_connection, peer))
        with self._lock:
            if self._shared is None:
                pool = self._host.share(KEY, ConnectionPool)
                self._shared = pool, pool.get_connection(self._name, partial(self._build_connection, None))
            return self._shared

    def _build_connection(self, peer: Peer | None) -> "Connection":
        from .client.connection import Connection  # noqa: PLC0415 - as above

        return Connection(self._settings, self._secrets, self._host, peer)


def _build_progress(ctx: Ctx) -> "Callable[[float, float | None, str | None], None]":
    """Return a function for another thread that shows the server's progress to the caller of *ctx*."""
    context = copy_context()  # a listener finds its call by a context variable

    def show(progress: float, total: float | None, message: str | None) -> None:
        members = {"progress": progress, "total": total, "message": message}
        context.run(ctx.progress, {key: value for key, value in members.items() if value is not None})

    return show


def _read_secrets(settings: Object, host: Host) -> dict[str, Secret]:
    """Return the secrets for the server; a missing one is a binding error."""
    given = (*settings.get("env", {}).values(), *settings.get("headers", {}).values())
    return {value["secret"]: host.secret(value["secret"]) for value in given if not isinstance(value, str)}


def _wait_or_await(future: "Future[Any]", seconds: float, what: str, started: threading.Event) -> Any:
    """Return the result of *future*, or an awaitable if this thread runs an event loop."""
    import asyncio  # noqa: PLC0415 - as above

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _wait(future, seconds, what, started)
    return asyncio.wrap_future(future)


def _wait(future: "Future[Any]", seconds: float, what: str, started: threading.Event) -> Any:
    """Wait for *seconds*; a call that was not *started* had no effects."""
    from concurrent.futures import CancelledError  # noqa: PLC0415 - as above

    try:
        return future.result(None if seconds == float("inf") else max(seconds, 0.0))
    except TimeoutError:
        why = f"{what}: no answer within {seconds:.3g} s, all that was left of the limit of the call (`timeout_ms`)"
        hint = (
            "; it was asked for: if it has effects, its outcome is unknown"
            if started.is_set()
            else "; nothing was asked"
        )
        raise Failed("TOOL_TIMEOUT", f"{why}{hint}", lost=started.is_set()) from None
    except CancelledError:
        raise Failed("MCP_DISCONNECTED", f"{what}: the connection was closed", lost=started.is_set()) from None
    finally:
        future.cancel()
