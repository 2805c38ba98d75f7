"""Features: found through entry points, made once for each kernel, asked at the few moments they take part in."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, Self

import attrs
import pluggy

from deedbook.contract import Object
from deedbook.contract.features import PROJECT, FeatureHooks
from deedbook.format.errors import BindingError, DeedbookError, DomainError, describe, fault

from .plugins import FEATURE, Catalogue, discover, load

_NO_SETTINGS: Final[Object] = MappingProxyType({})
_MOST: Final = 20
"""How many notices are kept."""


@attrs.define(eq=False)
class Notices:
    """What went wrong beside a session and denied nothing: kept until somebody shows it, or told to a listener."""

    found: list[tuple[str, DomainError]] = attrs.field(factory=list)
    _listener: Callable[[str, DomainError], None] | None = None

    def listen(self, listener: Callable[[str, DomainError], None]) -> None:
        """Tell *listener* every notice from now on: the feature that has it, and the error."""
        self._listener = listener

    @contextmanager
    def noting(self, subject: str) -> Iterator[None]:
        """Note what is raised meanwhile, instead of raising it."""
        try:
            yield
        except DeedbookError as problem:
            for each in problem.errors:
                self.add(subject, each)

    def add(self, subject: str, error: DomainError) -> None:
        """Note that something of the feature *subject* failed."""
        if self._listener is not None:
            self._listener(subject, error)
            return
        self.found.append((subject, error))
        del self.found[:-_MOST]


class Features:
    """The features of one kernel, each made once and asked at the few moments that it takes part in."""

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
        """Make the feature *name* take part from now on; raises `BindingError` if it is missing or broken."""
        with self._lock:
            if self._manager.has_plugin(name):
                return
            offer = self._catalogue.find(FEATURE, name)
            try:
                self._manager.register(load(offer)(), name)
                self._manager.check_pending()
            except DeedbookError:
                raise
            except KeyboardInterrupt:
                raise
            except BaseException as problem:  # noqa: BLE001 - a plugin may raise anything, even SystemExit
                raise BindingError(fault("PLUGIN_BROKEN", f"{offer}: {describe(problem)}")) from None

    @classmethod
    def installed(cls) -> Self:
        """Load every installed feature; raises `BindingError`."""
        catalogue = discover()
        return cls(catalogue, catalogue.names(FEATURE))

    def before_effects(
        self, kernel: Any, ledger: Any, undo: ExitStack
    ) -> Mapping[str, tuple[Callable[[Any], None], ...]]:
        """Return what is called before effects of each kind begin."""
        found: dict[str, tuple[Callable[[Any], None], ...]] = {}
        for _, ask in self._asking("before_effects"):
            for effects, function in (ask(kernel=kernel, ledger=ledger, undo=undo) or {}).items():
                found[effects] = (*found.get(effects, ()), function)
        return found

    def tell(self, moment: str, notices: Notices, **given: Any) -> None:
        """Tell every feature of a *moment*; one that fails is noted, and keeps no other from hearing of it."""
        for name, ask in self._asking(moment):
            try:
                ask(**given)
            except DeedbookError as problem:
                for each in problem.errors:
                    notices.add(name, each)
            except Exception as problem:  # noqa: BLE001 - whatever it raises, the others are told
                notices.add(name, fault("FAILED", describe(problem)))

    def each(self, moment: str, **given: Any) -> Iterator[Any]:
        """Yield everything that the features return; raises what one of them raises."""
        for _, ask in self._asking(moment):
            yield from ask(**given)

    def all(self, moment: str, **given: Any) -> bool:
        """Ask the features in turn until one says no; return whether none did. Raises what one of them raises."""
        return all(ask(**given) for _, ask in self._asking(moment))

    def demand(self, moment: str, **given: Any) -> None:
        """Tell every feature of a *moment*; raises what the first one that fails raises, after all were told."""
        problems: list[Exception] = []
        for _, ask in self._asking(moment):
            try:
                ask(**given)
            except Exception as problem:  # noqa: BLE001 - it is raised below
                problems.append(problem)
        if problems:
            raise problems[0]

    def _asking(self, moment: str) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Yield each feature's own answer to a *moment*, called with the arguments that it names."""
        for each in getattr(self._manager.hook, moment).get_hookimpls():
            yield each.plugin_name, _narrowed(each, self._settings.get(each.plugin_name, _NO_SETTINGS))


def _narrowed(answer: Any, settings: Object) -> Callable[..., Any]:
    """Return the method of a feature as a function that passes on only the arguments that the method names."""

    def ask(**given: Any) -> Any:
        given["settings"] = settings
        return answer.function(**{name: given[name] for name in answer.argnames})

    return ask
