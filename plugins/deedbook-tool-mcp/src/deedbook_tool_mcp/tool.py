"""One tool of an MCP server as the handler of an ability; abilities of a kernel share the connection to a server."""

import json
import threading
from collections.abc import Awaitable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from deedbook.contract import AbilityDeclaration, Ctx, Failed, HandlerSpec, Host, Json, Object, Secret

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .connection import Connection
    from .hub import ConnectionPool

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
SETTINGS: Final = {
    "type": "object",
    "required": ["server"],
    "oneOf": [{"required": ["command"]}, {"required": ["url"]}],
    "properties": {
        "server": {"type": "string", "minLength": 1},
        "command": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
        "cwd": {"type": "string"},
        "env": _GIVEN,
        "url": {"type": "string", "minLength": 1},
        "headers": _GIVEN,
        "tool": {"type": "string"},
        "pinned": {"type": "object"},
    },
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


def _check(declared: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    if declared.effects is None:
        yield "/effects", "say what a call of it does: a server's word for it is not taken"
    for key in ("tool", "pinned"):
        if key not in declared.settings:
            yield f"/with/{key}", "is missing; declare the server under servers:, then its tools are abilities"


class McpTool:
    """Calls one tool of the server in its settings, if the tool is unchanged since its review."""

    spec = HandlerSpec(settings=SETTINGS, gives=GIVES, effects="none", interruptible=True, check=_check)

    def __init__(self, settings: Object, host: Host) -> None:
        self._settings = settings
        self._host = host
        self._secrets = _read_secrets(settings, host)
        self._lock = threading.Lock()
        self._connection: tuple[ConnectionPool, Connection] | None = None

    def __call__(self, args: Any, ctx: Ctx) -> Json | Awaitable[Json]:
        """Call the tool; raises `Failed`."""
        hub, connection = self._get_connection()
        tool, pinned = self._settings["tool"], self._settings["pinned"]
        started = threading.Event()
        future = hub.submit(connection.call(tool, pinned, args, started))
        made: Json | Awaitable[Json] = _wait_or_await(future, ctx.remaining(), f"{connection.name}: {tool}", started)
        return made

    def listing(self) -> dict[str, Any]:
        """Return what the server lists now: ``about`` and ``tools``; raises `Failed`."""
        hub, connection = self._get_connection()
        found: dict[str, Any] = _wait_or_await(
            hub.submit(connection.listing()), LISTING_SECONDS, connection.name, threading.Event()
        )
        return found

    def _get_connection(self) -> "tuple[ConnectionPool, Connection]":
        """Return the shared connection, which opens at its first use."""
        with self._lock:
            if self._connection is None:
                from .hub import ConnectionPool  # noqa: PLC0415 - event loops are imported at the first call

                hub = self._host.share(KEY, ConnectionPool)
                settings = {key: value for key, value in self._settings.items() if key not in ("tool", "pinned")}
                name = json.dumps(settings, sort_keys=True)
                self._connection = hub, hub.get_connection(name, lambda: self._build_connection(settings))
            return self._connection

    def _build_connection(self, settings: Mapping[str, Any]) -> "Connection":
        from .connection import Connection  # noqa: PLC0415 - as above

        return Connection(settings, self._secrets, self._host)


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
