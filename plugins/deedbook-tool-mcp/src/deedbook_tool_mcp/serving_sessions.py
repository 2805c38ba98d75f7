"""Sessions of connections: one ledger for each, begun with its first call, ended when it is over."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Final, NamedTuple
from uuid import uuid4

import attrs

from deedbook import DomainError, Err, Kernel, Ok, Result, Session, SessionRefused

from .serving_lanes import Lanes
from .serving_tools import Shelf
from .serving_turns import noticed, shown

IDLE: Final = 1800.0
"""After how many seconds without a call the session of a connection that cannot be seen to end is ended."""


class Connection(NamedTuple):
    """Who is connected: on behalf of which principal, and by which *id* of the transport."""

    principal: str
    id: str = ""


@attrs.define
class _Held:
    """A session, how many calls are under way in it, and when the last one was."""

    session: Session
    calls: int
    latest: float


class Desk:
    """The sessions of one server, a *client* of *kernel*; its calls go on *lanes*, its tools stand on the *shelf*."""

    def __init__(self, kernel: Kernel, client: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kernel, self._client, self._clock = kernel, client, clock
        self._held: dict[Connection, _Held] = {}
        self._turn = Lock()
        self._closed = False
        self.lanes = Lanes()
        document = kernel.bindings.charter.document
        names = kernel.client(client, via="mcp").scope.names
        self.shelf = Shelf(document, sorted(document["abilities"]) if names is None else names)

    def taken(self, connection: Connection) -> Ok[Session] | None:
        """Do what `take` does where that needs no waiting: the session has begun, and nobody begins or ends one."""
        if not self._turn.acquire(blocking=False):
            return None
        try:
            held = self._held.get(connection)
            if held is None:
                return None
            held.calls += 1
            return Ok(held.session)
        finally:
            self._turn.release()

    def take(self, connection: Connection) -> Result[Session]:
        """Return the connection's session for one call, begun if there is none; `give_back` must follow an `Ok`."""
        with self._turn:
            held = self._held.get(connection)
            if held is None:
                begun = self._begin(connection)
                if isinstance(begun, Err):
                    return begun
                held = self._held[connection] = _Held(begun.value, 0, self._clock())
            held.calls += 1
            return Ok(held.session)

    def give_back(self, connection: Connection) -> None:
        """Say that a call is over."""
        with self._turn:
            held = self._held.get(connection)
            if held is not None:
                held.calls, held.latest = held.calls - 1, self._clock()

    def end(self, connection: Connection, reason: str) -> None:
        """End the connection's session, if it had one."""
        with self._turn:
            held = self._held.pop(connection, None)
        if held is not None:
            held.session.end(ok=True, reason=reason)

    def end_idle(self, seconds: float = IDLE) -> None:
        """End every session in which nothing happens and nothing has for so long."""
        with self._turn:
            before = self._clock() - seconds
            idle = [each for each, held in self._held.items() if not held.calls and held.latest <= before]
        for connection in idle:
            self.end(connection, "nothing was called any more")

    def close(self) -> None:
        """End every session; none begins any more."""
        with self._turn:
            self._closed = True
            left = list(self._held)
        for connection in left:
            self.end(connection, "the server has ended")
        self.lanes.close()

    def _begin(self, connection: Connection) -> Result[Session]:
        if self._closed:
            return Err(DomainError("ledger", "SESSION_ENDED", "the server has ended"))
        client = self._kernel.client(self._client, via="mcp", on_behalf_of=connection.principal)
        try:
            session = self._kernel.session("open", principal=client, show=shown, run=uuid4().hex)
        except SessionRefused as problem:
            return problem.refusal
        session.ledger.subscribe(noticed)
        return Ok(session)
