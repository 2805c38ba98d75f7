"""The feature `agents`: the tools of supported coding agents are abilities of the workspace that declares the agent."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl
from deedbook_serve import tools

if TYPE_CHECKING:
    from deedbook.workspace.declarations import AbilitySource, ClientSource


class Agents:
    """Provides abilities for coding agents from their tables."""

    @featureimpl
    def client_abilities(self, client: "ClientSource") -> "Iterable[AbilitySource]":
        """Return the tools of a supported agent as abilities."""
        return tools.build_abilities(client)

    @featureimpl
    def client_problems(self, client: "ClientSource") -> Iterable[tuple[str, str]]:
        """Return the faults of a workspace's declaration of the agent."""
        return tools.find_problems(client)
