"""``implement/<task>/tool_call.md``: a task as a page, rendered from the ledger and never read back.

The same events always give the same bytes, except that a run becomes ``unknown`` when its process is gone. Values that
are sealed in the ledger stay sealed.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from deedbook.contract import Event, Object
from deedbook.format.event_text import show
from deedbook.format.files import Folder
from deedbook_serve.markdown import block, escape, front, row

from .book import State, TaskBook, TaskRecord

FOLDER: Final = "implement"
PAGE: Final = "tool_call.md"


def get_path(task: TaskRecord) -> str:
    """Return the path of the page of *task* in the state folder; the form of ids keeps it inside."""
    return f"{FOLDER}/{task.id}/{PAGE}"


def write(book: TaskBook, task: TaskRecord) -> None:
    """Write the page of *task*, or remove that of a deleted one; raises `OSError` or `DeedbookError`."""
    if task.direct:
        return
    with Folder.at(book.state) as state:
        if task.state == "deleted":
            _remove(state, task)
        else:
            state.replace(get_path(task), render(book, task).encode(), synced=False)


def render(book: TaskBook, task: TaskRecord) -> str:
    """Return the page of *task* in its current state: a run whose process died is ``unknown``."""
    return "\n".join(_render_lines(task, book.get_state(task), book.read_events(task))) + "\n"


def _remove(state: Folder, task: TaskRecord) -> None:
    with suppress(FileNotFoundError):
        state.remove(get_path(task))
        with state.hold(FOLDER) as folder:
            os.rmdir(task.id, dir_fd=folder)


def _render_lines(task: TaskRecord, state: State, events: list[Event]) -> Iterator[str]:
    created = events[0].payload
    bound = [event for event in events if event.type in ("task.created", "task.updated")][-1].payload
    yield from front(
        {
            "task": task.id,
            "ability": task.ability,
            "state": state,
            "effects": show(created["effects"]),
            "principal": task.owner[0],
            "on_behalf_of": task.owner[1],
            "charter": task.charter,
            "created": task.created,
            "latest": task.latest,
            "runs": task.runs,
        }
    )
    yield from ("", f"# {escape(task.ability)}", "")
    yield from (escape(line) for line in _summarize(task, state))
    yield from ("", "## Input", "", *block(bound["args"]))
    yield from ("", "## Configuration", "", *block(bound["config"]))
    yield from ("", "## What happened", "", row(("time", "what", "more")), "|---|---|---|")
    yield from (row((event.ts, event.type.removeprefix("task."), _describe_payload(event.payload))) for event in events)
    for event in events:
        if event.type == "task.ended" and "result" in event.payload:
            run = show(event.payload["run"])
            yield from ("", f"## Result of run {escape(run)}", "", *block(event.payload["result"]))


def _summarize(task: TaskRecord, state: State) -> Iterator[str]:
    behalf = f" on behalf of {task.owner[1]}" if task.owner[1] else ""
    yield f"A task of {task.owner[0]}{behalf}, bound to charter {task.charter[:12]}; it stands as {state}."


def _describe_payload(payload: Object) -> str:
    """Return the other members of an event, in a few words."""
    parts: list[Any] = [
        f"run {show(payload['run'])}" if "run" in payload else "",
        show(payload.get("state", "")),
        show(payload.get("code", "")),
        show(payload.get("message", "")),
        f"{show(payload['duration_ms'])} ms" if "duration_ms" in payload else "",
        f"kernel {show(payload['environment'].get('kernel'))}" if isinstance(payload.get("environment"), dict) else "",
        f"approval {show(payload['approval'])}" if "approval" in payload else "",
        show(payload.get("answer", "")),
        show(payload.get("note", "")),
        f"session {show(payload['session'])}" if "session" in payload else "",
    ]
    return ", ".join(part for part in parts if part)
