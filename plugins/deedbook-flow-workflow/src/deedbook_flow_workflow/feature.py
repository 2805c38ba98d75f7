"""The feature `workflows`: reads the Markdown files of workflows and compiles them into the charter."""

from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbook.workspace.trees import SourceReader, SourceTree

    from .registry.registry import WorkflowRegistry


class WorkflowFeature:
    """Turns workflow files into abilities, policies and skills."""

    @featureimpl
    def read_section(
        self, reader: "SourceReader", tree: "SourceTree", roots: "Sequence[str]", packs: "Sequence[SourceTree]"
    ) -> "WorkflowRegistry":
        """Return the workflow files of ``.system/workflows``, of the folders *roots* and of *packs*."""
        from .registry.registry import WorkflowRegistry

        return WorkflowRegistry.read(reader, tree, roots, packs)
