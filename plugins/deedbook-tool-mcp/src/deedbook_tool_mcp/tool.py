"""One tool of an MCP server, as the handler of an ability; all abilities of a kernel share a connection to a server."""

import json
import threading
from collections.abc import Awaitable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from deedbook.contract import AbilityDeclaration, Ctx, Failed, HandlerSpec, Host, Json, Object, Secret

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .connection import Connection
    from .hub import Hub

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


class Mcp:
    """Calls one tool of the server that its settings name, if that is still what it was when somebody looked."""

    spec = HandlerSpec(settings=SETTINGS, gives=GIVES, effects="none", interruptible=True, check=_check)

    def __init__(self, settings: Object, host: Host) -> None:
        self._settings = settings
        self._host = host
        self._secrets = _secrets(settings, host)
        self._lock = threading.Lock()
        self._reached: tuple[Hub, Connection] | None = None

    def __call__(self, args: Any, ctx: Ctx) -> Json | Awaitable[Json]:
        """Call the tool; raises `Failed`."""
        hub, connection = self._reach()
        tool, pinned = self._settings["tool"], self._settings["pinned"]
        begun = threading.Event()
        future = hub.submit(connection.call(tool, pinned, args, begun))
        made: Json | Awaitable[Json] = _waited(future, ctx.remaining(), f"{connection.name}: {tool}", begun)
        return made

    def listing(self) -> dict[str, Any]:
        """Return what the server lists now: ``about`` and ``tools``; raises `Failed`."""
        hub, connection = self._reach()
        found: dict[str, Any] = _waited(
            hub.submit(connection.listing()), LISTING_SECONDS, connection.name, threading.Event()
        )
        return found

    def _reach(self) -> "tuple[Hub, Connection]":
        """Return the shared connection, which begins at its first use."""
        with self._lock:
            if self._reached is None:
                from .hub import Hub  # noqa: PLC0415 - event loops are imported at the first call

                hub = self._host.share(KEY, Hub)
                how = {key: value for key, value in self._settings.items() if key not in ("tool", "pinned")}
                name = json.dumps(how, sort_keys=True)
                self._reached = hub, hub.connection(name, lambda: self._made(how))
            return self._reached

    def _made(self, how: Mapping[str, Any]) -> "Connection":
        from .connection import Connection  # noqa: PLC0415 - as above

        return Connection(how, self._secrets, self._host)


def _secrets(settings: Object, host: Host) -> dict[str, Secret]:
    """Return the secrets that the server is given; one that is missing is a binding error."""
    given = (*settings.get("env", {}).values(), *settings.get("headers", {}).values())
    return {value["secret"]: host.secret(value["secret"]) for value in given if not isinstance(value, str)}


def _waited(future: "Future[Any]", seconds: float, what: str, begun: threading.Event) -> Any:
    """Return what *future* comes to, or something to await where this thread's event loop must not be held up."""
    import asyncio  # noqa: PLC0415 - as above

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _result(future, seconds, what, begun)
    return asyncio.wrap_future(future)


def _result(future: "Future[Any]", seconds: float, what: str, begun: threading.Event) -> Any:
    """Wait for *seconds*; what was not *begun* has done nothing."""
    from concurrent.futures import CancelledError  # noqa: PLC0415 - as above

    try:
        return future.result(None if seconds == float("inf") else max(seconds, 0.0))
    except TimeoutError:
        why = f"{what}: no answer within {seconds:.3g} s, all that was left of the limit of the call (`timeout_ms`)"
        told = (
            "; it was asked for: if it has effects, its outcome is unknown" if begun.is_set() else "; nothing was asked"
        )
        raise Failed("TOOL_TIMEOUT", f"{why}{told}", lost=begun.is_set()) from None
    except CancelledError:
        raise Failed("MCP_DISCONNECTED", f"{what}: the connection was closed", lost=begun.is_set()) from None
    finally:
        future.cancel()
