"""Inert effects: the real handlers of a workspace are constructed as at every start, and never called."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook.charter.instances import instances, merge_schemas, unfold
from deedbook.contract import ALLOW
from deedbook.kernel import Kernel
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import BoundAbility
from deedbook.policy.charter import is_isolated
from deedbook.policy.gates import BoundGate

OWN: Final = "guarantees-"
"""The beginning of the names of hooks, principals and policies that an attack adds to a copy."""
_ABSENT: Final = object()

Change = Callable[[BoundAbility], BoundAbility]
Gates = tuple[BoundGate, ...]


def _same(bound: BoundAbility) -> BoundAbility:
    return bound


class InertEffects:
    """Stands for the handler of every ability: counts the calls, and returns a result that the ability may give.

    *during* is called with the ability's id in the place of the effect; *result* replaces the result.
    """

    def __init__(self, kernel: Kernel, change: Change = _same) -> None:
        self.begun: list[str] = []
        self.during: Callable[[str], None] | None = None
        self.result: Any = _ABSENT
        self._document = kernel.bindings.charter.document
        self._change = change

    def bind(self, bound: BoundAbility) -> BoundAbility:
        """Return *bound* with an inert handler."""

        def handler(_args: Any, _ctx: Any) -> Any:
            self.begun.append(bound.id)
            if self.during is not None:
                self.during(bound.id)
            return self._result_of(bound) if self.result is _ABSENT else self.result

        return self._change(attrs.evolve(bound, handler=handler))

    def forget_result(self) -> None:
        """Give fitting results again."""
        self.result = _ABSENT

    def results(self, bound: BoundAbility) -> Iterator[Any]:
        """Yield results that the ability may give."""
        entry, schemas = self._document["abilities"][bound.id], self._document["schemas"]
        wide, narrow = (unfold(schemas.get(entry[side], True)) for side in ("gives", "schema_out"))
        for schema in (merge_schemas(wide, narrow), narrow, wide):
            yield from (value for value in instances(schema) if bound.gives.valid(value))

    def _result_of(self, bound: BoundAbility) -> Any:
        return next(self.results(bound), {})


class InertAbilities(Mapping[str, BoundAbility]):
    """The abilities of a kernel, each with an inert handler."""

    def __init__(self, abilities: Mapping[str, BoundAbility], effects: InertEffects) -> None:
        self._abilities = abilities
        self._effects = effects
        self._made: dict[str, BoundAbility] = {}

    def __getitem__(self, name: str) -> BoundAbility:
        if name not in self._made:
            self._made[name] = self._effects.bind(self._abilities[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._abilities)

    def __len__(self) -> int:
        return len(self._abilities)


def make_inert(kernel: Kernel, change: Change = _same, *, silence: bool = False) -> tuple[Kernel, InertEffects]:
    """Return *kernel* with inert handlers, and its effects; *change* changes each ability when it is first used.

    With *silence*, no hook in a process of its own is asked, except those that an attack added.
    """
    hushed = _silent_gates(kernel.bindings) if silence else _same_gates

    def adapt(bound: BoundAbility) -> BoundAbility:
        rewriters, guards, observers = (hushed(gates) for gates in (bound.rewriters, bound.guards, bound.observers))
        return change(attrs.evolve(bound, rewriters=rewriters, guards=guards, observers=observers))

    effects = InertEffects(kernel, adapt)
    bindings = attrs.evolve(
        kernel.bindings,
        abilities=InertAbilities(kernel.bindings.abilities, effects),
        hooks={event: hushed(gates) for event, gates in kernel.bindings.hooks.items()},
    )
    return attrs.evolve(kernel, bindings=bindings), effects


def _silent_gates(bindings: Bindings) -> Callable[[Gates], Gates]:
    hooks = bindings.charter.document["hooks"]

    def is_silent(hook: str) -> bool:
        return is_isolated(hooks[hook]) and not hook.startswith(OWN)

    def hush(gates: Gates) -> Gates:
        return tuple(attrs.evolve(gate, ask=_allow) if is_silent(gate.id) else gate for gate in gates)

    return hush


def _same_gates(gates: Gates) -> Gates:
    return gates


def _allow(*_subject: Any) -> Any:
    return ALLOW
