"""Pages that were rendered from a ledger of which a payload was taken out, rendered anew."""

from contextlib import suppress
from pathlib import Path

from deedbook.format.files import Folder
from deedbook.memory.book import Book as Memory
from deedbook.memory.store import NAME as STORE
from deedbook.serve import workdocs
from deedbook.serve.tasks import pages
from deedbook.serve.tasks.book import Book
from deedbook.workspace.declarations import Workspace

from .opening import OWN


def anew(workspace: Workspace, name: str) -> None:
    """Write the pages of the ledger *name* anew: a session's workdocs, where it has any, or those of all tasks."""
    if name == OWN:
        _tasks(workspace.state)
        _memory(workspace.state)
        return
    said = workspace.workdocs
    above, folder = (workspace.root, said) if isinstance(said, str) else (workspace.state, workdocs.FOLDER)
    if (above / folder / name).is_dir():
        workdocs.write(said or True, workspace.root, workspace.state, name)


def _memory(state: Path) -> None:
    """Write the memory's store anew, where there is one: it holds what is remembered."""
    with Folder.at(state) as folder:
        if not folder.exists(STORE):
            return
    with Memory(state, afresh=True) as book:
        book.rebuild()


def _tasks(state: Path) -> None:
    """Write the page of every task that has one; a task that nothing tells of any more has none."""
    with Book.of(state) as book:
        tasks = {task.id: task for task in book}
        for place in sorted((state / pages.FOLDER).glob(f"*/{pages.PAGE}")):
            task = tasks.get(place.parent.name)
            if task:
                pages.write(book, task)
                continue
            place.unlink()
            with suppress(OSError):
                place.parent.rmdir()
