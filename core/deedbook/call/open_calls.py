"""The calls of one session without a recorded outcome, from the writing of the intent on.

Each is in one table at a time: its intent or its outcome is being written, it is open, or it is lost (its outcome could
not be written). So the end of a session finds every call that still needs an outcome.
"""

import time
from collections.abc import Callable
from threading import Condition, Lock
from typing import Any, Final

from deedbook.format.errors import LedgerError, fault
from deedbook.ledger.ledger import Ledger

from .handlers import Outcome, Ticket

RECORD_SECONDS: Final = 30.0
"""How long the end of a session waits for other threads that write an intent or an outcome."""


class OpenCalls:
    """The calls of the session that writes *ledger*; *record* writes the outcome of a call that `take` returned.

    *open* holds tickets by span, *lost* those whose outcome could not be written; if *closed*, no call may begin.
    """

    def __init__(self, ledger: Ledger, record: Callable[[Ticket, Outcome], Any]) -> None:
        self.open: dict[str, Ticket] = {}
        self.lost: dict[str, Ticket] = {}
        self.closed = False
        self._ledger, self._record = ledger, record
        self._writing: set[str] = set()
        self._lock = Lock()
        self._written = Condition(self._lock)

    def announce(self, span: str) -> None:
        """Register that an intent is being written, so that `close` waits; raises `LedgerError` after `close`."""
        with self._lock:
            if self.closed:
                raise LedgerError(fault("SESSION_ENDED", f"session {self._ledger.session_id} has ended"))
            self._writing.add(span)

    def add(self, ticket: Ticket) -> None:
        """Register that the intent of *ticket* is written, and that the call is open."""
        self.open[ticket.span] = ticket
        self.settle(ticket.span)

    def take(self, ticket: Ticket) -> bool:
        """Register that the outcome of *ticket* is being written; return whether the call was open."""
        with self._lock:
            if self.open.pop(ticket.span, None) is None:
                return False
            self._writing.add(ticket.span)
            return True

    def finish(self, ticket: Ticket, outcome: str, end: str) -> None:
        """Register the written outcome of *ticket*: its span *outcome*, and how the call ended (*end*)."""
        ticket.outcome, ticket.end = outcome, end
        self.settle(ticket.span)

    def settle(self, span: str) -> None:
        """Register that the writing is over."""
        with self._lock:
            self._writing.discard(span)
            if self.closed:
                self._written.notify_all()

    def lose(self, ticket: Ticket) -> None:
        """Register that the outcome of *ticket* could not be written."""
        self.lost[ticket.span] = ticket
        self.settle(ticket.span)

    def record_lost(self) -> None:
        """Record ``unknown`` for the lost calls, in order, up to one that fails again."""
        while (ticket := self._reopen()) is not None:
            self._end(ticket, "could not be recorded")
            if ticket.outcome is None:
                return

    def close(self) -> None:
        """Refuse new calls, and record every open call as ``unknown``; nothing is retried.

        Raises `LedgerError` if one cannot be recorded, or is still being recorded after `RECORD_SECONDS`. The ledger
        must then stay without its end, so that recovery finds what is missing.
        """
        with self._lock:
            self.closed = True
        self._wait()
        self.record_lost()
        for ticket in reversed(list(self.open.values())):  # a nested call before its caller
            self._end(ticket, "never came")
        self._wait()  # for outcomes that arrived meanwhile
        self.record_lost()
        if self.lost:
            self._refuse(f"{len(self.lost)} calls have no recorded outcome, so the session is left without its end")

    def _reopen(self) -> Ticket | None:
        """Open the first lost call again; ``None`` if there is none."""
        with self._lock:
            for span in self.lost:
                self.open[span] = self.lost.pop(span)
                return self.open[span]
        return None

    def _end(self, ticket: Ticket, why: str) -> None:
        error = fault("OUTCOME_UNKNOWN", f"{ticket.bound.id} was begun and its outcome {why}")
        self._record(ticket, Outcome("unknown", error=error))

    def _wait(self) -> None:
        until = time.monotonic() + RECORD_SECONDS
        with self._lock:
            while self._writing:
                if not self._written.wait(max(until - time.monotonic(), 0)) and time.monotonic() >= until:
                    self._refuse(f"{len(self._writing)} calls are still being recorded after {RECORD_SECONDS:g} s")

    def _refuse(self, why: str) -> None:
        todo = f"check the disk, then run `deedbook sessions close {self._ledger.session_id}`"
        raise LedgerError(fault("LEDGER_BROKEN", f"{why}; {todo}", place=self._ledger.place))
