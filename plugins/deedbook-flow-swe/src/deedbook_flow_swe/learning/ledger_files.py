"""Read the records of tasks from the files of ledgers."""

import os
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

import attrs

from deedbook.contract import Event
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import read
from deedbook.format.sealed import open_values
from deedbook_flow_swe.task_record import TaskRecord

from .workspace_events import MARK, LearnedIndex

_FAMILY = "swe."


def read_records(state: Path) -> list[TaskRecord]:
    """Return the records of all tasks in the sessions below a *state* folder, in the order in which they began.

    Raises `LedgerError`, `OSError`.
    """
    found = [record for place in list_sessions(state) for record in read_session(place)]
    return sorted(found, key=lambda each: (each.started, each.session, each.task_id))


def find_session(state: str, session: str) -> Path:
    """Return the path of a session's ledger below a *state* folder."""
    return Path(state) / "sessions" / session / LEDGER_FILE


def list_sessions(state: Path) -> list[Path]:
    """Return the ledgers of all sessions below a *state* folder."""
    return sorted((state / "sessions").glob(f"*/{LEDGER_FILE}"))


def read_session(place: Path) -> list[TaskRecord]:
    """Return the records of the tasks in one ledger; none if it has no event of a task."""
    return TaskRecord.all_from_events(read_events(place), place.parent.name)


def read_events(place: Path) -> list[Event]:
    """Return the events of a ledger with events of tasks, with their sealed values opened; none of another ledger."""
    if not _has_mark(place):
        return []
    with Folder.at(place.parent) as folder:
        return list(_open_events(place, folder))


def read_learned(state: Path) -> LearnedIndex:
    """Return what the workspace ledger below a *state* folder says; raises `LedgerError`, `OSError`."""
    place = state / "workspace" / LEDGER_FILE
    index = LearnedIndex()
    if place.exists():
        with Folder.at(place.parent) as folder, folder.open(place.name) as file:
            index.read_lines((line for line in file if line.endswith(b"\n")), str(place))
    return index


def _has_mark(place: Path) -> bool:
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return content.find(MARK) >= 0


def _open_events(place: Path, folder: Folder) -> Iterator[Event]:
    """Yield the events of a ledger; those of tasks with the sealed values that were not erased."""
    for event in read(place):
        opened = open_values(folder, dict(event.payload)) if event.type.startswith(_FAMILY) else event.payload
        yield attrs.evolve(event, payload=opened)
