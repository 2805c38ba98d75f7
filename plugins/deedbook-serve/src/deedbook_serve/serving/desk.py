"""The sessions that are held open: whose they are, who uses them now, and when nobody came back for one."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import attrs

from deedbook.call.session import Session
from deedbook.contract import Principal
from deedbook.format.errors import DeedbookError, Err, Ok, Result, SessionRefused, fault
from deedbook.kernel import Kernel
from deedbook_serve.tasks.book import Book
from deedbook_serve.tasks.runner import Task, Tasks
from deedbook_serve.tasks.views import view

GRACE: Final = 60.0
"""Seconds for which a session is kept whose client went; it may come back, over another connection."""
MOST: Final = 1024
"""Sessions that are open at once."""
TURN: Final = 60.0
"""Seconds that a request waits for another one of the same session."""
SWEEPING: Final = 10.0
"""Seconds that `close` waits for a session that is just being ended because nobody came back for it."""
MOST_REFUSALS: Final = 100
LEFT: Final = "its client went away and did not come back"
STOPPED: Final = "the runtime was stopped"


@attrs.define(eq=False)
class OpenSession:
    """One open session: whose it is (*owner*), and by which connections it was used that are still there (*users*).

    *turn* is held by who does something in it; *left* is when the last of its users went, 0 while there is one.
    *requests* are the idempotency keys that came, *refusals* how often something was asked that was not done.
    """

    session: Session
    tasks: Tasks
    owner: str
    users: set[Any] = attrs.field(factory=set)
    turn: threading.Lock = attrs.field(factory=threading.Lock)
    left: float = 0.0
    requests: set[str] = attrs.field(factory=set)
    refusals: int = 0

    def may_refuse(self) -> bool:
        """Say whether one more refusal is recorded: a session's ledger does not grow by what others ask of it."""
        self.refusals += 1
        return self.refusals <= MOST_REFUSALS

    @property
    def id(self) -> str:
        """The session's id."""
        return self.session.id


class Desk:
    """The open sessions of a kernel. Each method may be called from any thread."""

    def __init__(self, kernel: Kernel, *, grace: float = GRACE, most: int = MOST) -> None:
        self._kernel = kernel
        self._grace = grace
        self._most = most
        self._seats: dict[str, OpenSession] = {}
        self._book = Book.of(kernel.site.state)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="deedbook-sweeper", daemon=True)
        self._sweeper.start()

    # --- coming and going ---------------------------------------------------------------------------------------------

    def open(self, principal: Principal, purpose: str, client: str | None, by: object, run: str) -> Result[OpenSession]:
        """Begin a session that is *principal*'s; *by* is the connection that it is used over, *run* its id."""
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        who = self._kernel.client(client, via=principal.via, on_behalf_of=principal.id) if client else principal
        try:
            session = self._kernel.session(purpose, principal=who, run=run)
        except SessionRefused as problem:
            return problem.refusal
        seat = OpenSession(session, Tasks(self._kernel, session, book=self._book), principal.id, {by})
        with self._lock:
            self._seats[seat.id] = seat
        if self._ending.is_set():  # the end passed by while it began
            self.end(seat, ok=False, reason=STOPPED)
            return self._refusal() or Ok(seat)
        return Ok(seat)

    def find(self, identity: str, principal: Principal) -> Result[OpenSession]:
        """Return the open session *identity*, if it is *principal*'s."""
        seat = self._seats.get(identity)
        if seat is None or seat.session.ended:
            return Err(fault("SESSION_NOT_FOUND", f"no session {identity!r} is open"))
        if seat.owner != principal.id:
            return Err(fault("SESSION_NOT_YOURS", f"session {identity} was opened by another principal"))
        return Ok(seat)

    def named(self, identity: str) -> OpenSession | None:
        """Return the open session *identity*, whosever it is."""
        return self._seats.get(identity)

    def task(self, identity: str) -> Task | None:
        """Return a task as it stands, if there is one."""
        self._book.refresh()
        kept = self._book.get(identity)
        return view(self._book, kept, opened=True) if kept else None

    def of(self, principal: Principal) -> list[OpenSession]:
        """Return the open sessions of *principal*, in the order in which they began."""
        with self._lock:
            return [seat for seat in self._seats.values() if seat.owner == principal.id]

    def count(self) -> int:
        """Return how many sessions are open."""
        return len(self._seats)

    @contextmanager
    def using(self, seat: OpenSession, by: object) -> Iterator[None]:
        """Do something in a session, alone; raises `DeedbookError` (``SESSION_BUSY``)."""
        with self._lock:
            seat.users.add(by)
            seat.left = 0.0
        if not seat.turn.acquire(timeout=TURN):
            why = f"session {seat.id} has been doing something else for {TURN:g} s; ask again"
            raise DeedbookError(fault("SESSION_BUSY", why, retryable=True))
        try:
            yield
        finally:
            seat.turn.release()

    def gone(self, by: object) -> None:
        """Take note that a connection has ended; the sessions that nobody else uses are kept for a while."""
        with self._lock:
            for seat in self._seats.values():
                if by in seat.users:
                    seat.users.discard(by)
                    seat.left = seat.left if seat.users else time.monotonic()

    def end(self, seat: OpenSession, *, ok: bool, reason: str) -> None:
        """End a session; raises `LedgerError` where that cannot be recorded."""
        try:
            seat.session.end(ok=ok, reason=reason)
        finally:
            with self._lock:
                self._seats.pop(seat.id, None)

    def close(self) -> int:
        """Begin no session any more, and end those that are open; return how many are left to the next start.

        That is so where the end cannot be recorded.
        """
        self._ending.set()
        self._sweeper.join(SWEEPING)  # it may be ending a session, which the next loop then finds ended
        left = 0
        for seat in list(self._seats.values()):
            try:
                self.end(seat, ok=False, reason=STOPPED)
            except (DeedbookError, OSError):
                left += 1
        self._book.close()
        return left

    # --- parts --------------------------------------------------------------------------------------------------------

    def _refusal(self) -> Err | None:
        if self._ending.is_set():
            return Err(
                fault("RUNTIME_ENDING", "the runtime is being stopped; ask again when it is back", retryable=True)
            )
        if len(self._seats) >= self._most:
            return Err(fault("RUNTIME_BUSY", f"{self._most} sessions are open; end one, or wait", retryable=True))
        return None

    def _sweep(self) -> None:
        """End the sessions that nobody came back for."""
        while not self._ending.wait(min(1.0, self._grace)):
            for seat in self._lapsed(time.monotonic() - self._grace):
                with suppress(DeedbookError, OSError):  # what cannot be recorded is for the next start
                    self.end(seat, ok=False, reason=f"{LEFT} within {self._grace:g} s")

    def _lapsed(self, before: float) -> list[OpenSession]:
        with self._lock:
            seats = [seat for seat in self._seats.values() if seat.left and seat.left <= before]
        return [seat for seat in seats if not seat.turn.locked()]
