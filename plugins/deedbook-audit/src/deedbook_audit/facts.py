"""The facts that gates read, folded from a ledger as behind its writer, and what they were a little before."""

from collections import deque
from typing import Any, Final

from deedbook.contract import Event
from deedbook.format.context import ContextFold
from deedbook.format.folds import MetricsFold

REMEMBERED: Final = 64
"""How many steps back are known: so much may calls that run beside each other have recorded meanwhile."""


class FoldedFacts:
    """The facts of one session, `step` by step."""

    def __init__(self) -> None:
        self._metrics, self._context = MetricsFold(), ContextFold()
        self._spent, self._state = self._metrics.start(), self._context.start()
        self._before: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)

    def step(self, event: Event) -> None:
        """Take the next event in."""
        self._before.append(self.now())
        self._spent = self._metrics.step(self._spent, event)
        self._state = self._context.step(self._state, event)

    def now(self) -> dict[str, Any]:
        """Return all facts, by the names that a gate's ``reads`` uses."""
        return {**self._spent.facts(), "context.state": self._state.state if self._state else None}

    def held(self, name: str, value: Any) -> bool:
        """Say whether the fact *name* was *value* a little before."""
        return any(past[name] == value for past in self._before)
