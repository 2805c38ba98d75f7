"""The open sessions of the runtime: their owners, their users, and the time since the last user left."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import attrs

from deedbook.contract import Principal
from deedbook.format.errors import DeedbookError, Err, Ok, Result, SessionRefused, fault
from deedbook.kernel import Kernel
from deedbook.sessions.session import Session
from deedbook_serve.tasks.book import TaskBook
from deedbook_serve.tasks.runner import Task, Tasks
from deedbook_serve.tasks.views import build_view

GRACE: Final = 60.0
"""Seconds that a session stays open after its last client disconnected; the client may come back."""
MAX_SESSIONS: Final = 1024
"""The largest number of open sessions."""
LOCK_TIMEOUT: Final = 60.0
"""Seconds that a request waits for another request of the same session."""
SWEEPER_TIMEOUT: Final = 10.0
"""Seconds that `close` waits for a session that the sweeper is just ending."""
MAX_REFUSALS: Final = 100
ABANDONED: Final = "its client went away and did not come back"
STOPPED: Final = "the runtime was stopped"


@attrs.define(eq=False)
class OpenSession:
    """One open session: its *owner*, and the connections that use it (*users*).

    A thread holds *lock* while it works in the session; *idle_since* is when the last user left, 0 while there is one.
    *requests* are the idempotency keys so far, *refusals* the number of refused requests. *has_context*: the last
    prompt came with a context.
    """

    session: Session
    tasks: Tasks
    owner: str
    users: set[Any] = attrs.field(factory=set)
    lock: threading.Lock = attrs.field(factory=threading.Lock)
    idle_since: float = 0.0
    requests: set[str] = attrs.field(factory=set)
    refusals: int = 0
    has_context: bool = False

    def count_refusal(self) -> bool:
        """Count a refusal; return whether to record it: refused requests do not grow a ledger without bound."""
        self.refusals += 1
        return self.refusals <= MAX_REFUSALS

    @property
    def id(self) -> str:
        """The session's id."""
        return self.session.id


class SessionTable:
    """The open sessions of a kernel. Its methods are safe in threads."""

    def __init__(self, kernel: Kernel, *, grace: float = GRACE, most: int = MAX_SESSIONS) -> None:
        self._kernel = kernel
        self._grace = grace
        self._most = most
        self._sessions: dict[str, OpenSession] = {}
        self._book = TaskBook.open(kernel.site.state)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="deedbook-sweeper", daemon=True)
        self._sweeper.start()

    # --- sessions ----------------------------------------------------------------------------------------------------

    def open(self, principal: Principal, purpose: str, client: str | None, by: object, run: str) -> Result[OpenSession]:
        """Begin a session for *principal*; *by* is the connection that uses it, *run* the connection's id."""
        refusal = self._check_open()
        if refusal is not None:
            return refusal
        who = self._kernel.client(client, via=principal.via, on_behalf_of=principal.id) if client else principal
        try:
            session = self._kernel.session(purpose, principal=who, run=run)
        except SessionRefused as problem:
            return problem.refusal
        open_session = OpenSession(session, Tasks(self._kernel, session, book=self._book), principal.id, {by})
        with self._lock:
            self._sessions[open_session.id] = open_session
        if self._ending.is_set():  # the table was closed while the session began
            self.end(open_session, ok=False, reason=STOPPED)
            return self._check_open() or Ok(open_session)
        return Ok(open_session)

    def find(self, identity: str, principal: Principal) -> Result[OpenSession]:
        """Return the open session *identity* if *principal* owns it."""
        open_session = self._sessions.get(identity)
        if open_session is None or open_session.session.ended:
            return Err(fault("SESSION_NOT_FOUND", f"no session {identity!r} is open"))
        if open_session.owner != principal.id:
            return Err(fault("SESSION_NOT_YOURS", f"session {identity} was opened by another principal"))
        return Ok(open_session)

    def get(self, identity: str) -> OpenSession | None:
        """Return the open session *identity* of any owner."""
        return self._sessions.get(identity)

    def find_task(self, identity: str) -> Task | None:
        """Return a task in its current state, if there is one."""
        self._book.refresh()
        record = self._book.get(identity)
        return build_view(self._book, record, opened=True) if record else None

    def list_sessions(self, principal: Principal) -> list[OpenSession]:
        """Return the open sessions of *principal*, in the order in which they began."""
        with self._lock:
            return [open_session for open_session in self._sessions.values() if open_session.owner == principal.id]

    def count(self) -> int:
        """Return the number of open sessions."""
        return len(self._sessions)

    @contextmanager
    def use(self, open_session: OpenSession, by: object) -> Iterator[None]:
        """Work in a session exclusively; raises `DeedbookError` (``SESSION_BUSY``)."""
        with self._lock:
            open_session.users.add(by)
            open_session.idle_since = 0.0
        if not open_session.lock.acquire(timeout=LOCK_TIMEOUT):
            why = f"session {open_session.id} has been doing something else for {LOCK_TIMEOUT:g} s; ask again"
            raise DeedbookError(fault("SESSION_BUSY", why, retryable=True))
        try:
            yield
        finally:
            open_session.lock.release()

    def release(self, by: object) -> None:
        """Remove an ended connection from its sessions; unused sessions stay open for the grace time."""
        with self._lock:
            for open_session in self._sessions.values():
                if by in open_session.users:
                    open_session.users.discard(by)
                    open_session.idle_since = open_session.idle_since if open_session.users else time.monotonic()

    def end(self, open_session: OpenSession, *, ok: bool, reason: str) -> None:
        """End a session; raises `LedgerError` if the end cannot be recorded."""
        try:
            open_session.session.end(ok=ok, reason=reason)
        finally:
            with self._lock:
                self._sessions.pop(open_session.id, None)

    def close(self) -> int:
        """Refuse new sessions and end the open ones; return how many are left for the next start to end.

        A session is left if its end cannot be recorded.
        """
        self._ending.set()
        self._sweeper.join(SWEEPER_TIMEOUT)  # the sweeper may be ending a session, which the next loop then finds ended
        remaining = 0
        for open_session in list(self._sessions.values()):
            try:
                self.end(open_session, ok=False, reason=STOPPED)
            except (DeedbookError, OSError):
                remaining += 1
        self._book.close()
        return remaining

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _check_open(self) -> Err | None:
        if self._ending.is_set():
            return Err(
                fault("RUNTIME_ENDING", "the runtime is being stopped; ask again when it is back", retryable=True)
            )
        if len(self._sessions) >= self._most:
            return Err(fault("RUNTIME_BUSY", f"{self._most} sessions are open; end one, or wait", retryable=True))
        return None

    def _sweep(self) -> None:
        """End the sessions whose grace time is over."""
        while not self._ending.wait(min(1.0, self._grace)):
            for open_session in self._find_expired(time.monotonic() - self._grace):
                with suppress(DeedbookError, OSError):  # an end that cannot be recorded is left for the next start
                    self.end(open_session, ok=False, reason=f"{ABANDONED} within {self._grace:g} s")

    def _find_expired(self, before: float) -> list[OpenSession]:
        with self._lock:
            sessions = [
                open_session
                for open_session in self._sessions.values()
                if open_session.idle_since and open_session.idle_since <= before
            ]
        return [open_session for open_session in sessions if not open_session.lock.locked()]
