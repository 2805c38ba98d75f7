"""A charter, bound: what judging a call needs of it, without any I/O."""

from collections.abc import Mapping
from typing import Any

import attrs

from deedbook.contract import Skill
from deedbook.format.schema import Validator

from .bound import BoundAbility, Patterns, Persona, no_persona
from .charter import Charter, is_elsewhere
from .gates import BoundGate


@attrs.frozen(eq=False, kw_only=True)
class Bindings:
    """A charter with everything it names loaded, checked and constructed."""

    charter: Charter
    abilities: Mapping[str, BoundAbility]
    enforcement: str
    hooks: Mapping[str, tuple[BoundGate, ...]]
    skills: Mapping[str, Skill]
    persona: Persona = no_persona
    records: Mapping[str, Validator] = attrs.field(factory=dict)

    @property
    def reads(self) -> frozenset[str]:
        """Every fact that some gate reads."""
        document = self.charter.document
        gates = (*document["hooks"].values(), *document["policies"].values())
        return frozenset().union(*(gate["reads"] for gate in gates))

    def declared(self, ability: str) -> Mapping[str, Any] | None:
        """Return what the charter says of an ability, which need not be bound for that."""
        entry: Mapping[str, Any] | None = self.charter.document["abilities"].get(ability)
        return entry

    def find(self, ability: str) -> BoundAbility | None:
        """Return an ability by its id, if it is one; raises `BindingError` if it cannot be bound."""
        try:
            return self.abilities[ability]
        except KeyError:
            return None

    def instructions(self, role: str) -> str | None:
        """Return the instructions of a role, or the persona of an agent, read now; ``None`` if there is no such one.

        Raises `Failed` if the persona is not what the charter was compiled with.
        """
        document = self.charter.document
        card = document.get("agents", {}).get(role)
        return self.persona(role, card) if card else document["instructions"].get(role)

    def within(self, role: str | None, allowed: frozenset[str]) -> frozenset[str]:
        """Return what of *allowed* is left to a role: an agent with a card has its capabilities, and no more."""
        card = self.charter.document.get("agents", {}).get(role)
        return allowed & frozenset(card["capabilities"]) if card else allowed

    def commands(self, skill: str) -> Patterns:
        """Return of which abilities a skill allows some commands only, and which."""
        said: Patterns = self.charter.document["skills"][skill].get("commands", {})
        return said

    @property
    def waits(self) -> bool:
        """Whether a hook is asked elsewhere than on the calling thread: an event loop should not wait for it."""
        return any(is_elsewhere(entry) for entry in self.charter.document["hooks"].values())

    def tier(self, role: str) -> str:
        """Return the model ability that serves *role*: its own tier, else ``standard``, else the first."""
        document = self.charter.document
        tiers = sorted(document["models"])
        tier = document["roles"].get(role) or ("standard" if "standard" in tiers else next(iter(tiers), "standard"))
        return f"model/{tier}"
