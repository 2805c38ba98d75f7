"""Says on the page of tasks that wait for a person which of them have an answer; outside of every run.

A run that waits cannot write the page. So the command that records an answer does.
"""

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from deedbook.format.canonical import MAX_BYTES
from deedbook.format.files import Conflict, Folder

from .board import ANSWERED, TaskBoard
from .renderings import HUMAN, mark_answered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from deedbook_flow_swe.definition import Definition

_ATTEMPTS: Final = 50
"""How often the page is read again: a run may have written its part in between."""


def update_review_pages(root: "Path", state: "Path", definitions: "Iterable[Definition]") -> None:
    """Mark the answered tasks on the pages of *definitions* in the workspace at *root*; raises `DeedbookError`."""
    board = TaskBoard(state)
    rows = [row for row in board.list_rows() if row.state == ANSWERED]
    board.close()
    with Folder.at(root) as folder:
        for definition in definitions:
            _update_page(folder, definition.path(HUMAN), {r.task_id for r in rows if r.pipeline == definition.id})


def _update_page(folder: Folder, path: str, answered: set[str]) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            found = folder.read(path, limit=MAX_BYTES)
        except FileNotFoundError:
            return
        text = mark_answered(found.decode("utf-8", "replace"), answered).encode()
        if text == found:
            return
        try:
            folder.replace(path, text, expected=sha256(found).hexdigest())
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return
