"""The facts that gates read, folded from a ledger as behind its writer, with their recent values."""

from collections import deque
from typing import Any, Final

from deedbook.contract import Event
from deedbook.format.context import ContextFold
from deedbook.format.folds import MetricsFold

MAX_HISTORY: Final = 64
"""The number of earlier states kept: concurrent calls may have recorded so many events meanwhile."""


class FoldedFacts:
    """The facts of one session; call `step` for each event."""

    def __init__(self) -> None:
        self._metrics, self._fold = MetricsFold(), ContextFold()
        self._metrics_state, self._contexts = self._metrics.start(), self._fold.start()
        self._history: deque[dict[str, Any]] = deque(maxlen=MAX_HISTORY)

    def step(self, event: Event) -> None:
        """Apply the next event."""
        self._history.append(self.now())
        self._metrics_state = self._metrics.step(self._metrics_state, event)
        self._contexts = self._fold.step(self._contexts, event)

    def now(self) -> dict[str, Any]:
        """Return all facts, by the names that a gate's ``reads`` uses."""
        return {
            **self._metrics_state.facts(),
            "context.state": self._contexts.latest_state,
        }

    def had_recently(self, name: str, value: Any) -> bool:
        """Return whether the fact *name* recently had the *value*."""
        return any(past[name] == value for past in self._history)
