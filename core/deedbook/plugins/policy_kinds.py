"""Policy kinds and their checks of policies: `PolicyChecks`, whose methods are all optional."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import attrs

from deedbook.contract import Object, PolicyProblem, PolicyTarget
from deedbook.format.errors import BindingError, describe_crash, fault

from .plugins import Catalogue, load


@attrs.frozen
class Kind:
    """A policy kind: its *name*, its class *made*. A method that fails raises `BindingError` (``PLUGIN_BROKEN``)."""

    name: str
    made: type[Any]

    def check(self, body: Object, abilities: Sequence[PolicyTarget]) -> list[PolicyProblem]:
        """Return the faults that the kind finds in *body*."""
        return self._ask("check", PolicyProblem, body, abilities)

    def reads(self, body: Object) -> frozenset[str]:
        """Return the facts that a policy with this body reads."""
        return frozenset({*self.made.spec.reads, *self._ask("reads", str, body)})

    def lint(self, body: Object, abilities: Sequence[PolicyTarget]) -> list[PolicyProblem]:
        """Return what the kind finds doubtful in *body*."""
        return self._ask("lint", PolicyProblem, body, abilities)

    def reachable(self, body: Object, abilities: Sequence[PolicyTarget]) -> frozenset[int | None] | None:
        """Return the rules that can decide (``None``: the default); ``None`` if the kind cannot list them."""
        if not hasattr(self.made, "reachable"):
            return None
        return frozenset(self._ask("reachable", int | None, body, abilities))

    def _ask(self, method: str, wanted: Any, *about: Any) -> list[Any]:
        asked: Callable[..., Iterable[Any]] | None = getattr(self.made, method, None)
        if asked is None:
            return []
        try:
            found = list(asked(*about))
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a plugin may raise anything, even SystemExit
            raise self._broken_error(f"{method} fails: {describe_crash(problem)}") from None
        for each in found:
            if not isinstance(each, wanted):
                raise self._broken_error(f"{method} yields {type(each).__name__}")
        return found

    def _broken_error(self, why: str) -> BindingError:
        return BindingError(fault("PLUGIN_BROKEN", f"policy kind {self.name!r}: {why}"))


Kinds: TypeAlias = Callable[[str], Kind | None]
"""Returns the policy kind for a name; ``None`` if it is missing or broken."""


def installed_kinds(catalogue: Catalogue) -> Kinds:
    """Return a lookup for the kinds of *catalogue*, each loaded at its first use."""

    def find(name: str) -> Kind | None:
        offer = catalogue.get("policy", name)
        try:
            return Kind(name, load(offer)) if offer else None
        except BindingError:
            return None

    return find
