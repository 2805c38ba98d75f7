"""``implement/<task>/tool_call.md``: a task as a page, rendered from the ledger and never read back.

The same events always make the same bytes, but that a run is ``unknown`` as soon as its process is gone. Parts that are
sealed in the ledger stay so.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from deedbook.contract import Event, Object
from deedbook.format.event_text import show
from deedbook.format.files import Folder
from deedbook.format.markdown import block, escape, front, row

from .book import Book, Kept, State

FOLDER: Final = "implement"
PAGE: Final = "tool_call.md"


def place_of(task: Kept) -> str:
    """Return where the page of *task* is beneath the state folder; ids have one form, which leads nowhere else."""
    return f"{FOLDER}/{task.id}/{PAGE}"


def write(book: Book, task: Kept) -> None:
    """Write the page of *task*, or remove that of a deleted one; raises `OSError` or `DeedbookError`."""
    if task.direct:
        return
    with Folder.at(book.state) as state:
        if task.state == "deleted":
            _remove(state, task)
        else:
            state.replace(place_of(task), rendered(book, task).encode(), synced=False)


def rendered(book: Book, task: Kept) -> str:
    """Return the page of *task* as it stands now: a run whose process died is ``unknown``, as everywhere."""
    return "\n".join(_lines(task, book.standing(task), book.events(task))) + "\n"


def _remove(state: Folder, task: Kept) -> None:
    with suppress(FileNotFoundError):
        state.remove(place_of(task))
        with state.hold(FOLDER) as folder:
            os.rmdir(task.id, dir_fd=folder)


def _lines(task: Kept, state: State, events: list[Event]) -> Iterator[str]:
    made = events[0].payload
    bound = [event for event in events if event.type in ("task.created", "task.updated")][-1].payload
    yield from front(
        {
            "task": task.id,
            "ability": task.ability,
            "state": state,
            "effects": show(made["effects"]),
            "principal": task.owner[0],
            "on_behalf_of": task.owner[1],
            "charter": task.charter,
            "created": task.created,
            "latest": task.latest,
            "runs": task.runs,
        }
    )
    yield from ("", f"# {escape(task.ability)}", "")
    yield from (escape(line) for line in _told(task, state))
    yield from ("", "## Input", "", *block(bound["args"]))
    yield from ("", "## Configuration", "", *block(bound["config"]))
    yield from ("", "## What happened", "", row(("time", "what", "more")), "|---|---|---|")
    yield from (row((event.ts, event.type.removeprefix("task."), _more(event.payload))) for event in events)
    for event in events:
        if event.type == "task.ended" and "result" in event.payload:
            run = show(event.payload["run"])
            yield from ("", f"## Result of run {escape(run)}", "", *block(event.payload["result"]))


def _told(task: Kept, state: State) -> Iterator[str]:
    behalf = f" on behalf of {task.owner[1]}" if task.owner[1] else ""
    yield f"A task of {task.owner[0]}{behalf}, bound to charter {task.charter[:12]}; it stands as {state}."


def _more(said: Object) -> str:
    """Return what else an event says, in a few words."""
    parts: list[Any] = [
        f"run {show(said['run'])}" if "run" in said else "",
        show(said.get("state", "")),
        show(said.get("code", "")),
        show(said.get("message", "")),
        f"{show(said['duration_ms'])} ms" if "duration_ms" in said else "",
        f"kernel {show(said['environment'].get('kernel'))}" if isinstance(said.get("environment"), dict) else "",
        f"approval {show(said['approval'])}" if "approval" in said else "",
        show(said.get("answer", "")),
        show(said.get("note", "")),
        f"session {show(said['session'])}" if "session" in said else "",
    ]
    return ", ".join(part for part in parts if part)
