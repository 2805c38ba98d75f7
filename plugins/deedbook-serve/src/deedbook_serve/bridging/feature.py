"""The feature `agents`: the tools of known coding agents are abilities of the workspace that declares the agent."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl
from deedbook_serve import tools

if TYPE_CHECKING:
    from deedbook.workspace.declarations import AbilitySource, ClientSource


class Agents:
    """Knows coding agents from their tables."""

    @featureimpl
    def client_abilities(self, client: "ClientSource") -> "Iterable[AbilitySource]":
        """Return the tools of a known agent as abilities."""
        return tools.abilities(client)

    @featureimpl
    def client_problems(self, client: "ClientSource") -> Iterable[tuple[str, str]]:
        """Return what the workspace may not say of the agent."""
        return tools.problems(client)
