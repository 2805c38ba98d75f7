"""The feature `servers`: reads the section of MCP servers, and looks at what they offer before a lock."""

from typing import TYPE_CHECKING, Any

from deedbook.contract.features import featureimpl

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace
    from deedbook.workspace.documents import Document
    from deedbook.workspace.trees import SourceReader, SourceTree

    from .servers import DeclaredServers


class Servers:
    """Reads the declared MCP servers, and compares their listings with the accepted ones."""

    @featureimpl
    def read_section(
        self, reader: "SourceReader", tree: "SourceTree", document: "Document | None"
    ) -> "DeclaredServers":
        """Return the declared servers with their stored listings."""
        from .servers import DeclaredServers, Servers

        said: Any = document.value if document else {}
        return DeclaredServers(Servers(reader, tree, document).read(said.get("servers", {})))

    @featureimpl
    def before_lock(self, workspace: "Workspace", yes: bool) -> bool:
        """List the tools of every declared server; return whether all changes are accepted."""
        from .commands.servers import review
        from .servers import declared_servers

        return review(workspace, declared_servers(workspace).values(), yes=yes)
