"""Find agents by what their cards say, and choose one: by capabilities and domain; pure. No persona is read.

An agent fits if its card has all wanted capabilities, each by its name on the card or by the id of an ability that it
grants, and if the words of the wanted domain are among those of its own. Agents that can use what is wanted come before
agents of which a wanted capability is unknown, then those with fewer other capabilities, then the names decide.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Self

import attrs

from deedbook import Failed, Object
from deedbook.contract import AgentInfo

MAX_CAPABILITIES: Final = 10
"""The most capabilities of a card, and so of a search."""

_WORDS: Final = re.compile(r"[^\W_]+")


@attrs.frozen
class AgentQuery:
    """What is wanted of an agent: all of the *capabilities*, and a *domain*; empty ones exclude no agent."""

    capabilities: tuple[str, ...] = ()
    domain: str = ""

    @classmethod
    def parse(cls, said: Object) -> Self:
        """Return the query in ``{capabilities, domain}``; raises `Failed` (``SCHEMA_VIOLATION``)."""
        names, domain = said.get("capabilities", []), said.get("domain", "")
        if not isinstance(names, list) or not all(isinstance(each, str) and each for each in names):
            raise Failed("SCHEMA_VIOLATION", f"capabilities: expected a list of names, found {names!r}")
        if len(names) > MAX_CAPABILITIES:
            raise Failed("SCHEMA_VIOLATION", f"capabilities: {len(names)}; a card has at most {MAX_CAPABILITIES}")
        if not isinstance(domain, str):
            raise Failed("SCHEMA_VIOLATION", f"domain: expected a text, found {domain!r}")
        return cls(tuple(dict.fromkeys(names)), domain)

    def find(self, agents: Iterable[AgentInfo]) -> list[AgentInfo]:
        """Return the agents that fit, the best first."""
        words = _split_words(self.domain)
        fitting = (each for each in agents if self._has_all(each) and words <= _split_words(each.domain))
        return sorted(fitting, key=lambda each: (bool(self.unknown(each)), len(each.capabilities), each.name))

    def choose(self, agents: Sequence[AgentInfo]) -> AgentInfo:
        """Return the best agent that can use all that is wanted; raises `Failed` (``NOT_AVAILABLE``)."""
        found = self.find(agents)
        if not found:
            known = ", ".join(sorted(each.name for each in agents)) or "none"
            raise Failed("NOT_AVAILABLE", f"no agent has {self}; agents: {known}")
        best = found[0]
        if unknown := self.unknown(best):
            why = "; ".join(f"{name}: {best.unknown[name]}" for name in unknown)
            raise Failed("NOT_AVAILABLE", f"{_join(found)} may be meant for {self}, which cannot be used: {why}")
        return best

    def unknown(self, agent: AgentInfo) -> list[str]:
        """Return the wanted capabilities that *agent* has on its card and that grant nothing."""
        return [name for name in self.capabilities if name in agent.unknown]

    def _has_all(self, agent: AgentInfo) -> bool:
        return all(name in agent.capabilities or name in agent.abilities for name in self.capabilities)

    def __str__(self) -> str:
        wanted = f"the capabilities {', '.join(self.capabilities)}" if self.capabilities else "any capability"
        return f"{wanted} in the domain {self.domain!r}" if self.domain else wanted


def _split_words(text: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(text.casefold()))


def _join(agents: Collection[AgentInfo]) -> str:
    return ", ".join(each.name for each in agents)
