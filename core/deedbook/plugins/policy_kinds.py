"""Policy kinds, asked about the policies that are written in them: `PolicyChecks`, whose methods are all optional."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import attrs

from deedbook.contract import Object, PolicyProblem, PolicyTarget
from deedbook.format.errors import BindingError, describe, fault

from .plugins import Catalogue, load


@attrs.frozen
class Kind:
    """A policy kind: its *name*, its class *made*. A method that fails raises `BindingError` (``PLUGIN_BROKEN``)."""

    name: str
    made: type[Any]

    def check(self, body: Object, abilities: Sequence[PolicyTarget]) -> list[PolicyProblem]:
        """Return what the kind finds wrong with *body*."""
        return self._ask("check", PolicyProblem, body, abilities)

    def reads(self, body: Object) -> frozenset[str]:
        """Return the facts that a policy of this body reads."""
        return frozenset({*self.made.spec.reads, *self._ask("reads", str, body)})

    def lint(self, body: Object, abilities: Sequence[PolicyTarget]) -> list[PolicyProblem]:
        """Return what the kind finds doubtful about *body*."""
        return self._ask("lint", PolicyProblem, body, abilities)

    def reachable(self, body: Object, abilities: Sequence[PolicyTarget]) -> frozenset[int | None] | None:
        """Return the rules that can decide, ``None`` among them for the default; ``None`` if the kind does not tell."""
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
            raise self._broken(f"{method} fails: {describe(problem)}") from None
        for each in found:
            if not isinstance(each, wanted):
                raise self._broken(f"{method} yields {type(each).__name__}")
        return found

    def _broken(self, why: str) -> BindingError:
        return BindingError(fault("PLUGIN_BROKEN", f"policy kind {self.name!r}: {why}"))


Kinds: TypeAlias = Callable[[str], Kind | None]
"""From the name of a policy kind to the kind; ``None`` where it is missing or broken."""


def installed_kinds(catalogue: Catalogue) -> Kinds:
    """Return the kinds of *catalogue*, each loaded when it is asked for."""

    def find(name: str) -> Kind | None:
        offer = catalogue.offered("policy", name)
        try:
            return Kind(name, load(offer)) if offer else None
        except BindingError:
            return None

    return find
