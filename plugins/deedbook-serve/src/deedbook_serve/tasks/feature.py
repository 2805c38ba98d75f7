"""The feature `tasks`: writes the pages of tasks anew when a payload is taken out of the workspace's ledger."""

from contextlib import suppress
from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl
from deedbook.maintenance.opening import OWN

from . import pages
from .book import Book

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace


class Tasks:
    """Keeps the pages of tasks in step with the workspace's ledger."""

    @featureimpl
    def pages_renewed(self, workspace: "Workspace", name: str) -> None:
        """Write the page of every task that has one; a task that nothing tells of any more has none."""
        if name != OWN:
            return
        with Book.of(workspace.state) as book:
            tasks = {task.id: task for task in book}
            for place in sorted((workspace.state / pages.FOLDER).glob(f"*/{pages.PAGE}")):
                task = tasks.get(place.parent.name)
                if task:
                    pages.write(book, task)
                    continue
                place.unlink()
                with suppress(OSError):
                    place.parent.rmdir()
