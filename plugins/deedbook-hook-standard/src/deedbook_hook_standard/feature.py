"""The feature `routing`: reads routing documents, and ranks what a prompt may be about."""

from typing import TYPE_CHECKING

from deedbook.contract import Object, Routes
from deedbook.contract.features import featureimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbook.workspace.documents import Document
    from deedbook.workspace.trees import SourceReader, SourceTree

    from .guides import Guides


class RoutingFeature:
    """Reads ``ROUTING.md`` and ``ABILITY.md``, and ranks abilities and their sections for prompts."""

    @featureimpl
    def read_section(
        self, reader: "SourceReader", tree: "SourceTree", document: "Document | None", roots: "Sequence[str]"
    ) -> "Guides":
        """Return the sections of the routing documents in ``.system``, then of those in *roots*."""
        from .guides import Guides

        guides = Guides(reader)
        guides.read(tree, tree.base)
        guides.read_roots(tree, roots, document)
        return guides

    @featureimpl
    def rank_routes(self, data: Object) -> Routes:
        """Return the catalogue that hooks get; its index is built now."""
        from .routes import CharterRoutes

        return CharterRoutes(data)
