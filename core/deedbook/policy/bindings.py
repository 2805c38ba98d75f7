"""The bindings of a charter: what judging a call needs, without any I/O."""

from collections.abc import Mapping
from typing import Any

import attrs

from deedbook.contract import Skill
from deedbook.format.schema import Validator

from .bound import BoundAbility, Patterns, Persona, no_persona
from .charter import Charter, is_asynchronous
from .gates import BoundGate
from .subjects import Subjects


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
    subjects: Subjects = attrs.field(factory=dict)

    @property
    def reads(self) -> frozenset[str]:
        """All facts that gates read."""
        document = self.charter.document
        gates = (*document["hooks"].values(), *document["policies"].values())
        return frozenset().union(*(gate["reads"] for gate in gates))

    def entry_of(self, ability: str) -> Mapping[str, Any] | None:
        """Return the charter's entry of an ability, which need not be bound."""
        entry: Mapping[str, Any] | None = self.charter.document["abilities"].get(ability)
        return entry

    def find(self, ability: str) -> BoundAbility | None:
        """Return an ability by its id, or ``None``; raises `BindingError` if it cannot be bound."""
        try:
            return self.abilities[ability]
        except KeyError:
            return None

    def instructions(self, role: str) -> str | None:
        """Return the instructions of a role, or the persona of an agent, read now; ``None`` if the role is unknown.

        Raises `Failed` if the persona is not what the charter was compiled with.
        """
        document = self.charter.document
        card = document.get("agents", {}).get(role)
        return self.persona(role, card) if card else document["instructions"].get(role)

    def within(self, role: str | None, allowed: frozenset[str]) -> frozenset[str]:
        """Return the part of *allowed* that a role may use: an agent with a card has only its capabilities."""
        card = self.charter.document.get("agents", {}).get(role)
        return allowed & frozenset(card.get("allowed", card["capabilities"])) if card else allowed

    def unknown_capability(self, role: str | None, name: str) -> str | None:
        """Return why the capability *name* on the card of *role* grants nothing; ``None`` if it does, or is not one."""
        card = self.charter.document.get("agents", {}).get(role, {})
        why: str | None = card.get("without", {}).get(name)
        return why

    def commands(self, skill: str) -> Patterns:
        """Return the abilities of which a skill allows only some commands, with their patterns."""
        patterns: Patterns = self.charter.document["skills"][skill].get("commands", {})
        return patterns

    @property
    def waits(self) -> bool:
        """Whether a hook runs outside the calling thread: an event loop should not wait for it."""
        return any(is_asynchronous(entry) for entry in self.charter.document["hooks"].values())

    @property
    def tiers(self) -> Mapping[str, str]:
        """The models of the profile by tier, each by the name that its provider has for it."""
        tiers: Mapping[str, str] = self.charter.document["models"]
        return tiers

    def tier(self, role: str) -> str:
        """Return the model ability of *role*: its own tier, else ``standard``, else the first."""
        first = "standard" if "standard" in self.tiers else next(iter(sorted(self.tiers)), "standard")
        return f"model/{self.charter.document['roles'].get(role) or first}"
