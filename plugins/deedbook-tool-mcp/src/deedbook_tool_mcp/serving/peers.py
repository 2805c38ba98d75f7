"""The clients of the gateway, as their connections to the server behind it see them."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final
from uuid import uuid4

import anyio
from mcp import MCPError
from mcp_types import LoggingMessageNotification, ServerNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from deedbook import DeedbookError, DomainError, Err, Json, Result, Session
from deedbook.contract import Failed
from deedbook_tool_mcp.client.peers import PEER
from deedbook_tool_mcp.requests import ELICIT

from . import people
from .lanes import MAX_CALLS, WorkerCall
from .sessions import Connection, ConnectionSessions
from .turns import CURRENT, MAX_UPDATES, Context, RunningCall

REFUSED: Final = "MCP_REQUEST_REFUSED"


class GatewayPeer:
    """A client of the gateway at *connection*; implements `deedbook_tool_mcp.client.peers.Peer`.

    *ctx* is the context of its first call. A question of the server waits at most *patience* seconds for an approval.
    """

    def __init__(self, sessions: ConnectionSessions, connection: Connection, patience: float, ctx: Context) -> None:
        self.id = uuid4().hex
        self.mode = "auto" if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"
        self.elicits = people.choose_contact(ctx.protocol_version, ctx.session.client_capabilities) == "question"
        self._sessions, self._connection, self._patience = sessions, connection, patience
        self._busy = anyio.Semaphore(MAX_CALLS)  # of its own: a question waits inside a call, which holds a place
        self._loop = asyncio.get_running_loop()
        self._latest = ctx
        self._running: dict[RunningCall, Context] = {}
        self._outbox: asyncio.Queue[ServerNotification] = asyncio.Queue(MAX_UPDATES)
        self._sender: asyncio.Task[None] | None = None
        self._closings: list[Callable[[], None]] | None = []
        self._lock = Lock()

    @contextmanager
    def during(self, call: RunningCall, ctx: Context) -> Iterator[None]:
        """Take notice of a call in progress; called on the loop that serves."""
        self._latest = self._running[call] = ctx
        try:
            yield
        finally:
            del self._running[call]

    # --- what the connection to the server calls, on its own thread --------------------------------------------------

    def notify(self, notification: ServerNotification) -> None:
        """Pass a notification to the client: a log message with the latest call in progress, all else by itself."""
        calls = list(self._running)
        if isinstance(notification, LoggingMessageNotification) and calls:
            calls[-1].add_log_message(notification)
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._post, notification)

    def elicit(self, params: Mapping[str, Any]) -> "Future[Mapping[str, Any]]":
        """Judge a question of the server, and ask the client's person if it is allowed."""
        return asyncio.run_coroutine_threadsafe(self._elicit(params), self._loop)

    def ask_person(self, params: Mapping[str, Any]) -> "Future[Mapping[str, Any]]":
        """Ask the client's person; the question was judged."""
        return asyncio.run_coroutine_threadsafe(self._ask(params), self._loop)

    def on_close(self, close: Callable[[], None]) -> None:
        """Call *close* when the client is gone; at once if it is."""
        with self._lock:
            if self._closings is not None:
                self._closings.append(close)
                return
        close()

    def close(self) -> None:
        """Close the connections to the server; called from any thread."""
        with self._lock:
            closings, self._closings = self._closings or [], None
        for close in closings:
            close()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stop_sending)

    # --- on the loop that serves -------------------------------------------------------------------------------------

    def _post(self, notification: ServerNotification) -> None:
        if self._sender is None:
            self._sender = self._loop.create_task(self._send())
        with suppress(asyncio.QueueFull):  # a client that does not read loses notifications
            self._outbox.put_nowait(notification)

    async def _send(self) -> None:
        while True:
            notification = await self._outbox.get()
            await self._latest.session.send_notification(notification)

    def _stop_sending(self) -> None:
        if self._sender is not None:
            self._sender.cancel()

    async def _elicit(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        session = await self._sessions.open(self._connection)
        if isinstance(session, Err):
            raise Failed(session.error.code, session.error.message)
        try:
            if self._running:
                work = WorkerCall(lambda: self._judge(session.value, dict(params)), self._sessions.loops, self._busy)
                answer = await work.run()
            else:
                why = DomainError("run", REFUSED, "the server asks the client's person, and no call is in progress")
                answer = await anyio.to_thread.run_sync(session.value.refuse, self._ability, why)
        finally:
            self._sessions.release(self._connection)
        if isinstance(answer, Err):
            raise Failed(answer.error.code, answer.error.message)
        found: Any = answer.value
        return dict(found)

    async def _judge(self, session: Session, params: Json) -> Result[Json]:
        """Make the question a call of its ability, on the worker's thread."""
        CURRENT.set(None)
        PEER.set(self)
        try:
            return await session.acall(self._ability, params, wait=self._patience)
        except DeedbookError as problem:
            return Err(problem.error)

    async def _ask(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self._running:
            raise Failed(REFUSED, "the call that the question belonged to is over")
        ctx = list(self._running.values())[-1]
        try:
            answer = await ctx.session.elicit_form(params["message"], params["requestedSchema"], ctx.request_id)
        except (MCPError, ValueError) as problem:
            raise Failed("MCP_REFUSED", f"the client did not ask its person: {problem}") from None
        return answer.model_dump(by_alias=True, exclude_none=True, mode="json", include={"action", "content"})

    @property
    def _ability(self) -> str:
        return f"{self._sessions.upstream}/{ELICIT}"


class PeerTable:
    """The clients of the gateway that *sessions* serves, by connection."""

    def __init__(self, sessions: ConnectionSessions, patience: float) -> None:
        self._sessions, self._patience = sessions, patience
        self._peers: dict[Connection, GatewayPeer] = {}
        sessions.on_end = self._close

    def find(self, connection: Connection, ctx: Context) -> GatewayPeer:
        """Return the client at *connection*, which makes a call with the context *ctx*."""
        peer = self._peers.get(connection)
        if peer is None:
            peer = self._peers[connection] = GatewayPeer(self._sessions, connection, self._patience, ctx)
        return peer

    def _close(self, connection: Connection) -> None:
        peer = self._peers.pop(connection, None)
        if peer is not None:
            peer.close()
