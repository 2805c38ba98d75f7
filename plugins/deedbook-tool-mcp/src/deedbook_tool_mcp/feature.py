"""The feature `servers`: looks at what MCP servers offer before a charter is locked."""

from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace


class Servers:
    """Compares the listings of MCP servers with the accepted ones."""

    @featureimpl
    def before_lock(self, workspace: "Workspace", yes: bool) -> bool:
        """List the tools of every declared server; return whether all changes are accepted."""
        from .commands.servers import review

        return review(workspace, workspace.servers.values(), yes=yes)
