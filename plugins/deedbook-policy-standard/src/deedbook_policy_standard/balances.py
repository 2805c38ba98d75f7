"""The balances of accounts: an index of the workspace ledger, read from its end once and then kept up to date.

Each event of a reservation holds the balances after it, so the newest event of an account is its state. From time to
time an event holds all balances, so that a process reads back to that and no further.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook.contract import Event
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import split_line

from .accounts import AccountId, Amounts

RESERVED: Final = "x.budgets.reserved"
SETTLED: Final = "x.budgets.settled"
BALANCES: Final = "x.budgets.balances"
MAX_BETWEEN: Final = 256
"""The most events of reservations between two events with all balances."""
MAX_ACCOUNTS: Final = 2_000
"""The most accounts that an event with all balances holds; with more, a process reads the whole ledger at its start."""

MARK: Final = b'"event_type":"x.budgets.'
"""What the lines of these events have in common."""
_HEADER: Final = 600


class Balances:
    """The balance of each account, from *ledger* (a `WorkspaceLedger`). Use it while the ledger is held exclusively.

    *late* are the calls (session and span) that were settled late. While *watched* is a set, it collects all calls that
    are settled.
    """

    def __init__(self, ledger: Any) -> None:
        self._known: dict[AccountId, Amounts] = {}
        self._between: int | None = None
        self._broken = ""
        self.late: set[tuple[str, str]] = set()
        self.watched: set[tuple[str, str]] | None = None
        self._place = ledger.place

    @classmethod
    def load(cls, ledger: Any) -> "Balances":
        """Read the balances from the end of *ledger*, and follow it; raises `LedgerError`."""
        made = cls(ledger)
        with ledger.exclusive():
            made._read_back(ledger)
            ledger.subscribe(made.step)
        return made

    def get(self, account: AccountId) -> Amounts:
        """Return the balance of *account*, empty if it was never used; raises `LedgerError`."""
        if self._broken:
            why = f"the balances of budgets cannot be read: {self._broken}; verify the workspace ledger"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=self._place))
        return self._known.get(account, {})

    def find_due(self, now: str) -> list[dict[str, Any]] | None:
        """Return all balances of periods that are not over, if an event with all of them is due; else ``None``."""
        if self._between is not None and self._between < MAX_BETWEEN:
            return None
        rows = [
            {**account.as_json(), "balance": dict(balance)}
            for account, balance in self._known.items()
            if account.since >= now[: len(account.since)]
        ]
        return rows if len(rows) <= MAX_ACCOUNTS else None

    def step(self, event: Event) -> None:
        """Apply one more event of the ledger."""
        if event.type == BALANCES:
            self._between = 0
        elif event.type in (RESERVED, SETTLED):
            self._between = None if self._between is None else self._between + 1
            if event.type == SETTLED and "accounts" in event.payload:
                self._note_settlement(event.payload)
            for account, balance in self._rows(event):
                self._known[account] = balance

    def _note_settlement(self, payload: Mapping[str, Any]) -> None:
        call = str(payload["session"]), str(payload["span"])
        if self.watched is not None:
            self.watched.add(call)
        if payload.get("late") is True:
            self.late.add(call)

    def _read_back(self, ledger: Any) -> None:
        between = 0
        for _, raw in ledger.backwards():
            if MARK not in raw[:_HEADER]:
                continue
            event = split_line(raw.rstrip(b"\n"), place=self._place).event
            for account, balance in self._rows(event):
                self._known.setdefault(account, balance)
            if event.type == BALANCES:
                self._between = between
                return
            between += 1

    def _rows(self, event: Event) -> Iterator[tuple[AccountId, Amounts]]:
        """Yield the balances of an event; one whose payload was removed has none."""
        rows = event.payload.get("accounts", ())
        try:
            for row in rows:
                balance: Mapping[str, Any] = row["balance"]
                _require_numbers(balance)
                yield AccountId.parse(row), balance
        except (KeyError, TypeError, AttributeError) as problem:
            self._broken = f"event {event.seq}: {problem}"


def _require_numbers(balance: Amounts) -> None:
    """Raise `TypeError` unless all amounts are whole numbers; a sealed one is not."""
    for each in (*balance["calls"].values(), *(each for name, each in balance.items() if name != "calls")):
        if type(each) is not int:
            raise TypeError("a balance is sealed, or no number")
