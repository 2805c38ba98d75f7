"""Whether a workspace has a log, and who keeps it in this process; costs next to nothing where there is none."""

import os
from collections import deque
from collections.abc import Callable, Collection
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from deedbook.approvals.keys import KeyRing
from deedbook.call.handlers import Outcome, Ticket
from deedbook.charter.settings import Settings
from deedbook.format.errors import DeedbookError, DomainError, LedgerError, fault
from deedbook.format.files import Folder
from deedbook.ledger.ledger import Ledger, WorkspaceLedger
from deedbook.ledger.newest import NAME

if TYPE_CHECKING:
    from .keeper import Keeper

_LAST: Final = 64
_REMEMBERED: Final = 20
_MARKS: Final = (b'"event_type":"ledger.checkpoint"', b'"event_type":"ledger.key"')


class Checkpoints:
    """The log of a workspace, as one process sees it: off until there is a key.

    *failures* is what lately could not be written and had nobody to be denied; whoever has an output says it.
    """

    def __init__(self, state: Folder, ledger: WorkspaceLedger, settings: Settings) -> None:
        self.settings = settings
        self.failures: deque[DomainError] = deque(maxlen=_REMEMBERED)
        self.failed: Callable[[DomainError], None] = self.failures.append
        self._state, self._ledger = state, ledger
        self._keeper: Keeper | None = None
        self._making = Lock()
        self._looked = False

    def begin(self, ledger: Ledger) -> "Keeper | None":
        """Return who covers the session that begins with *ledger*, if there is a log; raises `LedgerError`."""
        keeper = self.keeper()
        if keeper:
            keeper.begin(ledger)
        return keeper

    def keeper(self) -> "Keeper | None":
        """Return who writes this process's checkpoints, if there is a log by now; raises `LedgerError`."""
        with self._making:
            if self._keeper is None and is_on(
                self._state, self._ledger, self.settings, last=0 if self._looked else _LAST
            ):
                from .keeper import Keeper

                self._keeper = Keeper(self._state, self._ledger, self.settings, self._say)
            self._looked = True
        return self._keeper

    def _say(self, error: DomainError) -> None:
        self.failed(error)

    def end(self, ledger: Ledger) -> None:
        """Cover a session that has ended, if there is a log; what fails is said."""
        try:
            keeper = self.keeper()
            if keeper:
                keeper.end(ledger)
        except DeedbookError as problem:
            self.failed(problem.error)

    def cover(self, sessions: Collection[str] | None = None) -> None:
        """Cover sessions that were ended for others (default: all that have grown), if there is a log.

        What fails is said.
        """
        try:
            keeper = self.keeper()
            if keeper:
                keeper.cover_others(sessions)
        except DeedbookError as problem:
            self.failed(problem.error)
        except OSError as problem:
            self.failed(fault("FAILED", str(problem)))

    def close(self) -> None:
        """Write no more."""
        if self._keeper:
            self._keeper.close()


def is_on(state: Folder, ledger: WorkspaceLedger, settings: Settings, *, last: int = _LAST) -> bool:
    """Say whether the workspace has a log: any of its traces will do, so that taking one away does not end it.

    Of the ledger, the *last* lines are looked at.
    """
    if state.exists(NAME) or (settings.key and settings.key.exists()):
        return True
    if any(mark in raw[:512] for _, raw in islice(ledger.backwards(), last) for mark in _MARKS):
        return True
    return any(name.startswith(f"{ledger.session_id}.") for name in KeyRing.of(os.environ).names())


def covering(keeper: "Keeper", after: Callable[[Ticket, Outcome], Any]) -> Callable[[Ticket], None]:
    """Return what lets a call begin only when a checkpoint covers its intent; else it ends it with *after*, and raises.

    `LedgerError` (``CHECKPOINT_FAILED``).
    """

    def cover(ticket: Ticket) -> None:
        try:
            keeper.cover(ticket.session)
        except LedgerError as problem:
            why = fault("CHECKPOINT_FAILED", f"{ticket.bound.id} was not begun: {problem.error.message}")
            after(ticket, Outcome("failed", error=why))
            raise LedgerError(why) from problem

    return cover
