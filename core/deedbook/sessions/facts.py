"""The facts of a session that gates may read: folds of its ledger."""

from collections.abc import Callable, Iterable, Mapping

from deedbook.contract import Event, Object
from deedbook.format import canonical
from deedbook.format.context import ContextFold
from deedbook.format.errors import BindingError, DeedbookError, describe_crash, fault
from deedbook.format.folds import MetricsFold
from deedbook.ledger.ledger import Ledger
from deedbook.policy.bound import Caller


class Facts:
    """The facts of one session, updated as its ledger is written; *past* are the events of a resumed one.

    *others* read the facts of features for a caller, by default the session's own *caller*.
    """

    def __init__(
        self, ledger: Ledger, past: Iterable[Event], others: Mapping[str, Callable[[Caller], Object]], caller: Caller
    ) -> None:
        self._others, self._caller = others, caller
        self._metrics, self._fold = MetricsFold(), ContextFold()
        self._spent, self._contexts = self._metrics.start(), self._fold.start()
        for event in past:
            self._step(event)
        ledger.subscribe(self._step)

    def __call__(self, names: frozenset[str], caller: Caller | None = None) -> Object:
        """Return the named facts as they are now, for *caller*."""
        known = {**self._spent.facts(), "context.state": self._contexts.latest_state}
        for name in names - known.keys():
            known[name] = self._read(name, caller or self._caller)
        return {name: canonical.decode(canonical.encode(known[name])) for name in names}

    def _read(self, name: str, caller: Caller) -> Object:
        """Return a fact of a feature; raises `BindingError`, so that a call that needs it is denied."""
        try:
            return dict(self._others[name](caller))
        except DeedbookError:
            raise
        except Exception as problem:  # noqa: BLE001 - a feature may raise anything
            why = f"the fact {name} cannot be read: {describe_crash(problem)}"
            raise BindingError(fault("GATE_DENIED", why)) from None

    def _step(self, event: Event) -> None:
        self._spent = self._metrics.step(self._spent, event)
        self._contexts = self._fold.step(self._contexts, event)
