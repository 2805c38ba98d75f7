"""Features: found through entry points, constructed once for each kernel, and called at fixed moments."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import attrs
import pluggy

from deedbook.contract import Decision, Object
from deedbook.contract.features import PROJECT, AllowedCall, FeatureHooks, FeatureSpec
from deedbook.format.errors import BindingError, DeedbookError, DomainError, describe_crash, fault

from .groups import FEATURE
from .plugins import Catalogue, discover, load

if TYPE_CHECKING:
    from deedbook.contract.views import KernelView, LedgerView

_NO_SETTINGS: Final[Object] = MappingProxyType({})
_MOST: Final = 20
"""How many notices are kept."""


@attrs.define(eq=False)
class Notices:
    """Errors beside a session that denied nothing: kept until they are shown, or passed to a listener."""

    found: list[tuple[str, DomainError]] = attrs.field(factory=list)
    _listener: Callable[[str, DomainError], None] | None = None

    def listen(self, listener: Callable[[str, DomainError], None]) -> None:
        """Pass every further notice to *listener*: the name of the feature, and the error."""
        self._listener = listener

    @contextmanager
    def collect(self, subject: str) -> Iterator[None]:
        """Record errors that are raised inside as notices."""
        try:
            yield
        except DeedbookError as problem:
            for each in problem.errors:
                self.add(subject, each)

    def add(self, subject: str, error: DomainError) -> None:
        """Record an *error* of the feature *subject*."""
        if self._listener is not None:
            self._listener(subject, error)
            return
        self.found.append((subject, error))
        del self.found[:-_MOST]


class SessionParts(NamedTuple):
    """What features add to one session: the answers of the methods of `FeatureHooks` with these names.

    Functions that are asked about calls have the names of their features.
    """

    before_effects: Mapping[str, Sequence[Callable[[Any], None]]] = MappingProxyType({})
    facts: Mapping[str, Callable[[Any], Object]] = MappingProxyType({})
    judge_calls: Sequence[tuple[str, Callable[[AllowedCall], Decision]]] = ()
    before_intents: Sequence[tuple[str, Callable[[AllowedCall], Callable[[Any], None] | None]]] = ()
    around_intents: Sequence[tuple[str, Callable[[AllowedCall], AbstractContextManager[object]]]] = ()
    blocking: bool = False

    @property
    def asks(self) -> bool:
        """Whether a feature is asked about each call."""
        return bool(self.judge_calls or self.before_intents or self.around_intents)


class Features:
    """The features of one kernel, each constructed once and called at fixed moments."""

    def __init__(
        self, catalogue: Catalogue, names: Iterable[str] = (), settings: Mapping[str, Object] = MappingProxyType({})
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(FeatureHooks)
        self._lock = Lock()
        for name in names:
            self.require(name)

    def require(self, name: str) -> None:
        """Activate the feature *name*; raises `BindingError` if it is missing or broken."""
        with self._lock:
            if self._manager.has_plugin(name):
                return
            offer = self._catalogue.find(FEATURE, name)
            try:
                self._manager.register(load(offer)(), name)
                self._manager.check_pending()
            except (DeedbookError, KeyboardInterrupt):
                raise
            except BaseException as problem:  # noqa: BLE001 - a plugin may raise anything, even SystemExit
                raise BindingError(fault("PLUGIN_BROKEN", f"{offer}: {describe_crash(problem)}")) from None

    @classmethod
    def load(cls) -> Self:
        """Load every installed feature; raises `BindingError`."""
        catalogue = discover()
        return cls(catalogue, catalogue.names(FEATURE))

    def session_parts(self, kernel: "KernelView", ledger: "LedgerView", undo: ExitStack) -> SessionParts:
        """Return what the features add to the session that writes *ledger*."""
        effects: dict[str, tuple[Callable[[Any], None], ...]] = {}
        for _, ask in self._answers("before_effects"):
            for name, function in (ask(kernel=kernel, ledger=ledger, undo=undo) or {}).items():
                effects[name] = (*effects.get(name, ()), function)
        facts: dict[str, Callable[[Any], Object]] = {}
        for _, ask in self._answers("session_facts"):
            facts |= ask(kernel=kernel, ledger=ledger) or {}
        judges, before, around = (
            tuple(self._functions(moment, kernel=kernel, ledger=ledger))
            for moment in ("judge_calls", "before_intents", "around_intents")
        )
        asked = {name for name, _ in (*judges, *before, *around)}
        blocking = any(getattr(self._manager.get_plugin(name), "spec", FeatureSpec()).blocking for name in asked)
        return SessionParts(effects, facts, judges, before, around, blocking)

    def _functions(self, moment: str, **given: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Yield the functions that features return at *moment*; raises `BindingError` for anything else."""
        for name, ask in self._answers(moment):
            found = ask(**given)
            if callable(found):
                yield name, found
            elif found is not None:
                why = f"feature {name!r} returned a {type(found).__name__} from {moment}, not a function"
                raise BindingError(fault("PLUGIN_BROKEN", why))

    def notify(self, moment: str, notices: Notices, **given: Any) -> None:
        """Call every feature at *moment*; an error is recorded as a notice, and the other features are still called."""
        for name, ask in self._answers(moment):
            try:
                ask(**given)
            except DeedbookError as problem:
                for each in problem.errors:
                    notices.add(name, each)
            except Exception as problem:  # noqa: BLE001 - the other features are still called
                notices.add(name, fault("FAILED", describe_crash(problem)))

    def each(self, moment: str, **given: Any) -> Iterator[Any]:
        """Yield everything that the features return; raises the first error."""
        for _, ask in self._answers(moment):
            yield from ask(**given)

    def ask(self, moment: str, **given: Any) -> Any:
        """Return the answer of the first feature that gives one; raises `BindingError` if none does."""
        for _, ask in self._answers(moment):
            return ask(**given)
        names = ", ".join(name for name, _ in self._manager.list_name_plugin())
        raise BindingError(fault("PLUGIN_BROKEN", f"feature {names} does not implement {moment}"))

    def all(self, moment: str, **given: Any) -> bool:
        """Call the features in turn until one returns false; return whether none did. Raises the first error."""
        return all(ask(**given) for _, ask in self._answers(moment))

    def demand(self, moment: str, **given: Any) -> None:
        """Call every feature at *moment*; after all calls, raise the first error."""
        problems: list[Exception] = []
        for _, ask in self._answers(moment):
            try:
                ask(**given)
            except Exception as problem:  # noqa: BLE001 - it is raised below
                problems.append(problem)
        if problems:
            raise problems[0]

    def _answers(self, moment: str) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Yield each feature's method for *moment*, called only with the arguments that it names."""
        for each in getattr(self._manager.hook, moment).get_hookimpls():
            yield each.plugin_name, _pass_named_arguments(each, self._settings.get(each.plugin_name, _NO_SETTINGS))


def _pass_named_arguments(answer: Any, settings: Object) -> Callable[..., Any]:
    """Return the method of a feature as a function that passes on only the arguments that the method names."""

    def ask(**given: Any) -> Any:
        given["settings"] = settings
        return answer.function(**{name: given[name] for name in answer.argnames})

    return ask
