"""Streamable HTTP: the address, the principals, and the checks of each request.

Only for this machine unless there are tokens; ``Host`` and ``Origin`` are checked, so that no web page can rebind a
name of its own to this server.
"""

import contextlib
import hmac
import re
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, Final

import anyio
import attrs
import click
import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deedbook import Kernel
from deedbook_tool_mcp.messages import RefusedMessage, parse_message

from .server import build_server, run_until_stopped
from .sessions import IDLE, Connection, ConnectionSessions
from .stdio import MAX_MESSAGE
from .turns import Context

PATH: Final = "/mcp"
MAX_SESSIONS: Final = 256
"""How many clients of a revision with sessions may be connected at once."""
GRACE: Final = 5
"""How many seconds a request has to finish when the server stops."""
_LOCAL: Final = "local"
_PORT: Final = re.compile("[0-9]{1,5}")
_HEADER: Final = "mcp-session-id"
_EVERYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 - refused without a name


@attrs.frozen
class HttpAddress:
    """The address, its further *names*, and the principals that may connect, by the SHA-256 of their token."""

    host: str
    port: int
    names: tuple[str, ...] = ()
    tokens: Mapping[bytes, str] = attrs.field(factory=dict)

    @classmethod
    def parse(cls, where: str, tokens: Sequence[str], names: Sequence[str], kernel: Kernel) -> "HttpAddress":
        """Return the address of the command line; raises `click.UsageError` for one that is not safe."""
        host, _, port = where.rpartition(":")
        host = host.strip("[]")
        if not _PORT.fullmatch(port) or int(port) > 65535:
            why = f"--http {where!r} is no HOST:PORT, such as 127.0.0.1:8080"
            raise click.UsageError(why)
        known = dict(_parse_token(each, kernel) for each in tokens)
        if not known and not _is_loopback(host):
            why = f"--http {where}: beyond this machine only with --token PRINCIPAL=SECRET"
            raise click.UsageError(why)
        if host in _EVERYWHERE and not names:
            why = f"--http {where}: say with --allow-host by which names this server is called"
            raise click.UsageError(why)
        return cls(host, int(port), tuple(names), known)

    def find_principal(self, headers: Mapping[str, str]) -> str | None:
        """Return the principal of a request; ``None`` if its token is not known."""
        if not self.tokens:
            return _LOCAL
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = sha256(token.strip().encode()).digest()
        found = None
        for digest, principal in self.tokens.items():  # all of them, in constant time
            found = principal if hmac.compare_digest(digest, given) else found
        return found if scheme.lower() == "bearer" else None

    def build_security(self, port: int) -> TransportSecuritySettings:
        """Return the accepted values of ``Host`` and ``Origin``."""
        own = ["127.0.0.1", "localhost", "[::1]"] if _is_loopback(self.host) else [_format_host(self.host)]
        hosts = [host for name in (*own, *self.names) for host in (name, f"{name}:{port}")]
        origins = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
        return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


def serve_http(sessions: ConnectionSessions, patience: float, address: HttpAddress) -> None:
    """Serve clients until a signal stops the server."""
    listening = _listen(address)
    port = listening.getsockname()[1]

    app = build_application(build_server(sessions, patience, find_connection), sessions, address, port)
    server = _SignalFreeServer(uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=GRACE))

    async def serve() -> None:
        click.echo(f"listening on http://{_format_host(address.host)}:{port}{PATH}", err=True)
        await server.serve(sockets=[listening])

    def stop() -> None:
        server.should_exit = True

    try:
        anyio.run(run_until_stopped, serve, stop)
    finally:
        sessions.close()
        listening.close()


def build_application(server: Server[Any], sessions: ConnectionSessions, address: HttpAddress, port: int) -> ASGIApp:
    """Return the ASGI application; *port* is the port it listens at."""
    manager = StreamableHTTPSessionManager(
        server,
        security_settings=address.build_security(port),
        session_idle_timeout=IDLE,
        max_request_body_size=MAX_MESSAGE,
        max_sessions=MAX_SESSIONS,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with manager.run(), anyio.create_task_group() as group:
            group.start_soon(_sweep, sessions)
            yield
            group.cancel_scope.cancel()

    return Starlette(routes=[Route(PATH, _HttpGate(manager, sessions, address))], lifespan=lifespan)


def find_connection(ctx: Context) -> Connection:
    """Return the connection of a request: its principal, and its session if the revision has one."""
    request = ctx.request
    assert request is not None
    return Connection(request.scope["user"].username, request.headers.get(_HEADER, ""))


class _HttpGate:
    """Accepts requests that *address* allows, and ends a session when its connection is deleted."""

    def __init__(
        self, manager: StreamableHTTPSessionManager, sessions: ConnectionSessions, address: HttpAddress
    ) -> None:
        self._manager, self._sessions, self._address = manager, sessions, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        principal = self._address.find_principal(request.headers)
        if principal is None:
            body = {"error": "unauthorized", "error_description": "bring a token that this server knows"}
            await JSONResponse(body, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        scope["user"] = AuthenticatedUser(AccessToken(token="-", client_id=principal, scopes=[]))  # noqa: S106 - none
        if request.method == "POST":
            content, receive = await _read_body(request.headers, receive)
            try:
                if content is not None:
                    parse_message(content)
            except RefusedMessage as problem:
                reply = problem.build_reply().model_dump_json(by_alias=True)
                await Response(reply, 400, media_type="application/json")(scope, receive, send)
                return
        await self._manager.handle_request(scope, receive, send)
        if request.method == "DELETE":
            over = Connection(principal, request.headers.get(_HEADER, ""))
            await anyio.to_thread.run_sync(self._sessions.end, over, "the client has ended it")


async def _read_body(headers: Mapping[str, str], receive: Receive) -> tuple[bytes | None, Receive]:
    """Return the body of a request, and a function that gives it to the SDK again.

    ``None`` for a body that ends too early or is too large; the SDK refuses it before reading.
    """
    parts, size, more, last = [], 0, True, None
    if headers.get("content-length", "0").rjust(20, "0") > f"{MAX_MESSAGE:020}":
        return None, receive
    while more and size <= MAX_MESSAGE:
        last = await receive()
        if last["type"] != "http.request":
            return None, _replay([last], receive)
        parts.append(last)
        size += len(last.get("body", b""))
        more = last.get("more_body", False)
    whole = None if more else b"".join(part.get("body", b"") for part in parts)
    return whole, _replay(parts, receive)


def _replay(parts: list[Message], receive: Receive) -> Receive:
    """Return a function that gives *parts* first, and then receives."""
    left = iter(parts)

    async def give() -> Message:
        part = next(left, None)
        return await receive() if part is None else part

    return give


class _SignalFreeServer(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


async def _sweep(sessions: ConnectionSessions) -> None:
    while True:
        await anyio.sleep(IDLE / 10)
        await anyio.to_thread.run_sync(sessions.end_idle)


def _listen(address: HttpAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
        listener.listen()  # before the address is printed, so that no client is refused while the server starts
    except OSError as problem:
        listener.close()
        why = f"--http {address.host}:{address.port}: {problem.strerror or problem}"
        raise click.ClickException(why) from None
    return listener


def _parse_token(option: str, kernel: Kernel) -> tuple[bytes, str]:
    principal, _, secret = option.partition("=")
    value = kernel.site.secret_values().get(secret)
    if not value:
        why = f"--token {option!r}: no secret {secret!r} is declared under secrets: and set in the environment"
        raise click.UsageError(why)
    return sha256(value.encode()).digest(), kernel.principal(principal).id


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _format_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
