"""The feature `memory`: removes its store when a payload of the workspace's ledger is excised, and writes it again."""

from contextlib import suppress
from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl
from deedbook.format.files import Folder
from deedbook.maintenance.opening import OWN

from .book import MemoryBook
from .store import NAME

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace


class MemoryFeature:
    """Keeps the store in step with the workspace's ledger, whose fold it is."""

    @featureimpl
    def payload_removed(self, state: Folder, name: str) -> None:
        """Remove the store: it may hold the excised value."""
        if name == OWN:
            with suppress(FileNotFoundError):
                state.remove(NAME)

    @featureimpl
    def pages_renewed(self, workspace: "Workspace", name: str) -> None:
        """Write the store again, if there was one."""
        if name == OWN and (workspace.state / NAME).exists():
            with MemoryBook(workspace.state, afresh=True) as book:
                book.rebuild()
