"""Sessions of connections: one ledger each, which starts with the first call and ends with the connection."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Final, NamedTuple
from uuid import uuid4

import anyio
import attrs

from deedbook import DomainError, Err, Kernel, Ok, Result, Session, SessionRefused

from .lanes import WorkerLoops
from .tools import list_abilities, list_upstream_tools
from .turns import record_event, show_progress

IDLE: Final = 1800.0
"""How many seconds without a call end the session of a connection whose end is not visible."""


class Connection(NamedTuple):
    """A client's connection: its principal, and the *id* of the transport."""

    principal: str
    id: str = ""


@attrs.define
class _OpenSession:
    """A session, the number of calls in progress, and the time of the latest one."""

    session: Session
    calls: int
    latest: float


class ConnectionSessions:
    """The sessions of one server for a *client* of *kernel*; calls run on *loops*.

    With *upstream*, the name of a server of the workspace, the server is the gateway in front of that one. *on_end* is
    called with each connection that ends.
    """

    def __init__(
        self, kernel: Kernel, client: str, upstream: str = "", *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kernel, self._client, self._clock = kernel, client, clock
        self.upstream = upstream
        self.on_end: Callable[[Connection], None] = _do_nothing
        self._sessions: dict[Connection, _OpenSession] = {}
        self._lock = Lock()
        self._closed = False
        self.loops = WorkerLoops()
        self.document = document = kernel.bindings.charter.document
        names = kernel.client(client, via="mcp").scope.names
        self.exposed = frozenset(document["abilities"] if names is None else names)
        self.tools = (
            list_upstream_tools(document, self.exposed, upstream)
            if upstream
            else list_abilities(document, self.exposed)
        )

    async def open(self, connection: Connection) -> Result[Session]:
        """Do what `take` does, from the loop that serves."""
        session: Result[Session] | None = self.take_open(connection)
        return await anyio.to_thread.run_sync(self.take, connection) if session is None else session

    def take_open(self, connection: Connection) -> Ok[Session] | None:
        """Do what `take` does if it needs no waiting: the session is open, and the lock is free."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            session = self._sessions.get(connection)
            if session is None:
                return None
            session.calls += 1
            return Ok(session.session)
        finally:
            self._lock.release()

    def take(self, connection: Connection) -> Result[Session]:
        """Return the connection's session for one call, opened if needed; `release` must follow an `Ok`."""
        with self._lock:
            session = self._sessions.get(connection)
            if session is None:
                begun_session = self._begin(connection)
                if isinstance(begun_session, Err):
                    return begun_session
                session = self._sessions[connection] = _OpenSession(begun_session.value, 0, self._clock())
            session.calls += 1
            return Ok(session.session)

    def release(self, connection: Connection) -> None:
        """Record that a call is over."""
        with self._lock:
            session = self._sessions.get(connection)
            if session is not None:
                session.calls, session.latest = session.calls - 1, self._clock()

    def end(self, connection: Connection, reason: str) -> None:
        """End the connection's session, if it had one."""
        with self._lock:
            session = self._sessions.pop(connection, None)
        if session is not None:
            session.session.end(ok=True, reason=reason)
        self.on_end(connection)

    def end_idle(self, seconds: float = IDLE) -> None:
        """End every session without calls in progress or in the last *seconds*."""
        with self._lock:
            before = self._clock() - seconds
            idle = [each for each, session in self._sessions.items() if not session.calls and session.latest <= before]
        for connection in idle:
            self.end(connection, "nothing was called any more")

    def close(self) -> None:
        """End every session and open no more."""
        with self._lock:
            self._closed = True
            left = list(self._sessions)
        for connection in left:
            self.end(connection, "the server has ended")
        self.loops.close()

    def _begin(self, connection: Connection) -> Result[Session]:
        if self._closed:
            return Err(DomainError("ledger", "SESSION_ENDED", "the server has ended"))
        client = self._kernel.client(self._client, via="mcp", on_behalf_of=connection.principal)
        try:
            session = self._kernel.session("open", principal=client, show=show_progress, run=uuid4().hex)
        except SessionRefused as problem:
            return problem.refusal
        session.ledger.subscribe(record_event)
        return Ok(session)


def _do_nothing(_connection: Connection) -> None:
    """Stand for a listener that is not set."""
