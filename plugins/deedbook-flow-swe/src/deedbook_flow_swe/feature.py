"""The feature `swe`: reads the files of pipelines and compiles them into the charter."""

from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbook.workspace.documents import Document
    from deedbook.workspace.trees import SourceReader, SourceTree

    from .registry.registry import PipelineRegistry


class SweFeature:
    """Turns the files of pipelines into abilities."""

    @featureimpl
    def read_section(
        self, reader: "SourceReader", tree: "SourceTree", document: "Document | None", packs: "Sequence[SourceTree]"
    ) -> "PipelineRegistry":
        """Return the pipelines of ``.system/swe`` and of *packs*; *document* names further folders of agents."""
        from .registry.registry import PipelineRegistry

        return PipelineRegistry.read(reader, tree, document, packs)
