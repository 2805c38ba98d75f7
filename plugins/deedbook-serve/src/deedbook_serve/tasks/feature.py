"""The feature `tasks`: writes the pages of tasks again after a payload was removed from the workspace's ledger."""

from contextlib import suppress
from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl
from deedbook.maintenance.opening import OWN

from . import pages
from .book import TaskBook

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace


class TasksFeature:
    """Keeps the pages of tasks in step with the workspace's ledger."""

    @featureimpl
    def pages_renewed(self, workspace: "Workspace", name: str) -> None:
        """Write the page of every task that has one; remove the page of a task that is no longer recorded."""
        if name != OWN:
            return
        with TaskBook.open(workspace.state) as book:
            tasks = {task.id: task for task in book}
            for place in sorted((workspace.state / pages.FOLDER).glob(f"*/{pages.PAGE}")):
                task = tasks.get(place.parent.name)
                if task:
                    pages.write(book, task)
                    continue
                place.unlink()
                with suppress(OSError):
                    place.parent.rmdir()
