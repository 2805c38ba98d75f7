"""Streamable HTTP: who may connect, from where, and on whose behalf.

On this machine alone unless tokens are asked for; ``Host`` and ``Origin`` are checked, so that no web page can rebind
a name of its own to this server.
"""

import contextlib
import hmac
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

from .messages import Refused, intake
from .serving_calls import Context
from .serving_server import build, until_told
from .serving_sessions import IDLE, Connection, Desk
from .serving_stdio import LONGEST

PATH: Final = "/mcp"
SESSIONS: Final = 256
"""How many clients of a revision with sessions may be connected at once."""
GRACE: Final = 5
"""How many seconds a request that is under way has when the server is told to end."""
_LOCAL: Final = "local"
_HEADER: Final = "mcp-session-id"
_EVERYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 - what is refused without a name


@attrs.frozen
class Address:
    """Where to listen, under which further *names*, and who may connect: principals by the SHA-256 of their token."""

    host: str
    port: int
    names: tuple[str, ...] = ()
    tokens: Mapping[bytes, str] = attrs.field(factory=dict)

    @classmethod
    def parse(cls, where: str, tokens: Sequence[str], names: Sequence[str], kernel: Kernel) -> "Address":
        """Return the address that the command line says; raises `click.UsageError` for one that is not safe."""
        host, _, port = where.rpartition(":")
        host = host.strip("[]")
        if not port.isdigit() or int(port) > 65535:
            why = f"--http {where!r} is no HOST:PORT, such as 127.0.0.1:8080"
            raise click.UsageError(why)
        known = dict(_token(each, kernel) for each in tokens)
        if not known and not _is_loopback(host):
            why = f"--http {where}: beyond this machine only with --token PRINCIPAL=SECRET"
            raise click.UsageError(why)
        if host in _EVERYWHERE and not names:
            why = f"--http {where}: say with --allow-host by which names this server is called"
            raise click.UsageError(why)
        return cls(host, int(port), tuple(names), known)

    def principal(self, headers: Mapping[str, str]) -> str | None:
        """Return on whose behalf a request is made; ``None`` for one whose token is not known."""
        if not self.tokens:
            return _LOCAL
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = sha256(token.strip().encode()).digest()
        found = None
        for digest, principal in self.tokens.items():  # all of them, in the same time
            found = principal if hmac.compare_digest(digest, given) else found
        return found if scheme.lower() == "bearer" else None

    def security(self, port: int) -> TransportSecuritySettings:
        """Return which ``Host`` and ``Origin`` are this server's."""
        own = ["127.0.0.1", "localhost", "[::1]"] if _is_loopback(self.host) else [_named(self.host)]
        hosts = [host for name in (*own, *self.names) for host in (name, f"{name}:{port}")]
        origins = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
        return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


def serve_http(kernel: Kernel, client: str, patience: float, address: Address) -> None:
    """Serve every client that connects until a signal ends it."""
    desk = Desk(kernel, client)
    listening = _listen(address)
    port = listening.getsockname()[1]

    app = application(build(desk, patience, connected), desk, address, port)
    server = _Server(uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=GRACE))

    async def serve() -> None:
        click.echo(f"listening on http://{_named(address.host)}:{port}{PATH}", err=True)
        await server.serve(sockets=[listening])

    def stop() -> None:
        server.should_exit = True

    try:
        anyio.run(until_told, serve, stop)
    finally:
        desk.close()
        listening.close()


def application(server: Server[Any], desk: Desk, address: Address, port: int) -> ASGIApp:
    """Return the ASGI application; *port* is where it is reached."""
    manager = StreamableHTTPSessionManager(
        server,
        security_settings=address.security(port),
        session_idle_timeout=IDLE,
        max_request_body_size=LONGEST,
        max_sessions=SESSIONS,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with manager.run(), anyio.create_task_group() as group:
            group.start_soon(_sweep, desk)
            yield
            group.cancel_scope.cancel()

    return Starlette(routes=[Route(PATH, _Door(manager, desk, address))], lifespan=lifespan)


def connected(ctx: Context) -> Connection:
    """Return who made a request: its principal, and its session where the revision has one."""
    request = ctx.request
    assert request is not None
    return Connection(request.scope["user"].username, request.headers.get(_HEADER, ""))


class _Door:
    """Lets in whom *address* knows, and ends a session with the connection that is deleted."""

    def __init__(self, manager: StreamableHTTPSessionManager, desk: Desk, address: Address) -> None:
        self._manager, self._desk, self._address = manager, desk, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        principal = self._address.principal(request.headers)
        if principal is None:
            body = {"error": "unauthorized", "error_description": "bring a token that this server knows"}
            await JSONResponse(body, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        scope["user"] = AuthenticatedUser(AccessToken(token="-", client_id=principal, scopes=[]))  # noqa: S106 - none
        if request.method == "POST":
            content, receive = await _read(request.headers, receive)
            try:
                if content is not None:
                    intake(content)
            except Refused as problem:
                told = problem.reply().model_dump_json(by_alias=True)
                await Response(told, 400, media_type="application/json")(scope, receive, send)
                return
        await self._manager.handle_request(scope, receive, send)
        if request.method == "DELETE":
            over = Connection(principal, request.headers.get(_HEADER, ""))
            await anyio.to_thread.run_sync(self._desk.end, over, "the client has ended it")


async def _read(headers: Mapping[str, str], receive: Receive) -> tuple[bytes | None, Receive]:
    """Return the body of a request, and what gives it to the SDK again.

    ``None`` for one that ends too early or is too large, which the SDK refuses before it reads it.
    """
    parts, size, more, last = [], 0, True, None
    if headers.get("content-length", "0").rjust(20, "0") > f"{LONGEST:020}":
        return None, receive
    while more and size <= LONGEST:
        last = await receive()
        if last["type"] != "http.request":
            return None, _again([last], receive)
        parts.append(last)
        size += len(last.get("body", b""))
        more = last.get("more_body", False)
    whole = None if more else b"".join(part.get("body", b"") for part in parts)
    return whole, _again(parts, receive)


def _again(parts: list[Message], receive: Receive) -> Receive:
    """Return what gives *parts* first, and then what is received."""
    left = iter(parts)

    async def give() -> Message:
        part = next(left, None)
        return await receive() if part is None else part

    return give


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def _sweep(desk: Desk) -> None:
    while True:
        await anyio.sleep(IDLE / 10)
        await anyio.to_thread.run_sync(desk.end_idle)


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address.host, address.port))
    except OSError as problem:
        made.close()
        why = f"--http {address.host}:{address.port}: {problem.strerror or problem}"
        raise click.ClickException(why) from None
    return made


def _token(said: str, kernel: Kernel) -> tuple[bytes, str]:
    principal, _, secret = said.partition("=")
    value = kernel.site.secret_values().get(secret)
    if not value:
        why = f"--token {said!r}: no secret {secret!r} is declared under secrets: and set in the environment"
        raise click.UsageError(why)
    return sha256(value.encode()).digest(), kernel.principal(principal).id


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _named(host: str) -> str:
    return f"[{host}]" if ":" in host else host
