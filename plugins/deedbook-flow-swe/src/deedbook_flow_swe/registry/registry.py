"""The registry of a workspace's pipelines: what their files declare for the charter."""

from collections.abc import Sequence
from typing import Self

from deedbook.workspace.declarations import FeatureSection
from deedbook.workspace.documents import Document
from deedbook.workspace.trees import SourceReader, SourceTree


class PipelineRegistry(FeatureSection):
    """The files of pipelines of a workspace."""

    @classmethod
    def read(
        cls, reader: SourceReader, tree: SourceTree, document: Document | None, packs: Sequence[SourceTree]
    ) -> Self:
        """Read all files; faults are reported to *reader*."""
        del reader, tree, document, packs
        return cls()
