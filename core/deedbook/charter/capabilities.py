"""What the capabilities on agents' cards grant: the abilities of that name or alias; pure.

A capability that names no ability grants nothing. It is marked with the reason, and the agent can still be found.
"""

from typing import Any

from deedbook.contract import AgentInfo
from deedbook.workspace.declarations import CardSource, Workspace

from .grants import Grants, resolve_grants


class Capabilities:
    """The capabilities in *workspace*; a name that many cards have is resolved once."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._grants: dict[str, Grants] = {}

    def describe(self, card: CardSource) -> AgentInfo:
        """Return the agent as its card describes it."""
        grants = {name: self._resolve(name) for name in sorted(card.capabilities)}
        return AgentInfo(
            name=card.id,
            domain=card.domain,
            capabilities=card.capabilities,
            abilities=frozenset().union(*(each.abilities for each in grants.values())),
            unknown={name: each.unresolved[name] for name, each in grants.items() if each.unresolved},
        )

    def entries(self, card: CardSource) -> dict[str, Any]:
        """Return the members of the agent's entry in a charter.

        ``allowed`` is left out where it would be the same as ``capabilities``, and ``without`` where it would be empty.
        """
        found = self.describe(card)
        allowed = {"allowed": sorted(found.abilities)} if found.abilities != found.capabilities else {}
        without = {"without": dict(found.unknown)} if found.unknown else {}
        return {"capabilities": sorted(found.capabilities), **allowed, **without}

    def _resolve(self, name: str) -> Grants:
        if name not in self._grants:
            self._grants[name] = resolve_grants([name], self._workspace.aliases, self._workspace.abilities)
        return self._grants[name]
