"""Workdocs: three pages for people about a session's request, its context and its outcome.

The pages are rendered from the session's ledger and never read back; the same events always give the same bytes. Text
of people and models is quoted and escaped, data stands in blocks, and values that are sealed in the ledger stay sealed.
The tables of a long session hold only their first rows.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.contract import Event, Object
from deedbook.format.errors import LedgerError, fault
from deedbook.format.event_text import show
from deedbook.format.events import SESSION_ID
from deedbook.format.files import Folder
from deedbook.format.folds import SnapshotFold
from deedbook.format.reader import read
from deedbook_inspect.event_summary import summary

from .markdown import block, escape, front, quote, row

TASK: Final = "task.md"
CONTEXT: Final = "context.md"
OUTCOME: Final = "outcome.md"
FOLDER: Final = "workdocs"
"""The folder in the state folder, if the workspace names no other place."""
MAX_ROWS: Final = 200
"""The largest number of rows of a table, and of quoted requests."""

_PLANS: Final = ("context.clarified", "context.scoped", "context.planned")
_DECISIONS: Final = frozenset(
    {
        "tool.denied", "task.denied", "approval.requested", "approval.granted", "approval.refused", "approval.expired",
        "approval.withdrawn", "schema.violation", "skill.invoke", "agent.transition",
    }
)  # fmt: skip
_OUTCOMES: Final = frozenset(
    {
        "tool.result", "tool.error", "flow.result", "flow.error", "llm.error", "memory.result", "memory.error",
        "tool.denied", "worker.report",
    }
)  # fmt: skip


@attrs.define
class _Rows:
    """The rows of a table, the first `MAX_ROWS`, and the total count."""

    rows: list[str] = attrs.field(factory=list)
    count: int = 0

    def add(self, event: Event) -> None:
        self.count += 1
        if self.count <= MAX_ROWS:
            self.rows.append(row((event.ts, event.type, summary(event))))

    def lines(self, title: str) -> Iterator[str]:
        if self.rows:
            yield from ("", f"## {title}", "", "| time | what | more |", "|---|---|---|", *self.rows)
        if self.count > MAX_ROWS:
            yield from ("", f"And {self.count - MAX_ROWS} more; see the ledger.")


class WorkdocPages:
    """The fold of the events of *session* (its id) that renders its pages."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._fold = SnapshotFold()
        self._snapshot = self._fold.start()
        self._start: Event | None = None
        self._end: Event | None = None
        self._prompts: list[Event] = []
        self._requests = 0
        self._replies: list[Event] = []
        self._plans: dict[str, Event] = {}
        self._states, self._decisions, self._calls, self._tasks = _Rows(), _Rows(), _Rows(), _Rows()

    def step(self, event: Event) -> None:
        """Apply *event*."""
        self._snapshot = self._fold.step(self._snapshot, event)
        if event.type == "session.start":
            self._start = event
        elif event.type == "session.end":
            self._end = event
        elif event.type == "user.message":
            self._requests += 1
            self._prompts = [*self._prompts, event][:MAX_ROWS]
        elif event.type == "agent.reply":
            self._replies = [event]
        self._collect(event)

    def _collect(self, event: Event) -> None:
        if event.type in _PLANS:
            self._plans[event.type] = event
        gate = event.type in ("hook.fired", "policy.check") and event.payload.get("decision") != "allow"
        for rows, wanted in (
            (self._states, event.type.startswith("context.") and event.type != "context.noted"),
            (self._decisions, gate or event.type in _DECISIONS),
            (self._calls, event.type in _OUTCOMES),
            (self._tasks, event.type.startswith("task.")),
        ):
            if wanted:
                rows.add(event)

    def pages(self) -> dict[str, str]:
        """Return the pages by name; raises `LedgerError` if there was no ``session.start``."""
        if self._start is None:
            raise LedgerError(fault("LEDGER_UNSOUND", "it does not begin with session.start; verify it"))
        pages = {
            TASK: self._task(self._start),
            CONTEXT: self._context(self._start),
            OUTCOME: self._outcome(self._start),
        }
        return {name: "\n".join(lines) + "\n" for name, lines in pages.items()}

    # --- the pages ---------------------------------------------------------------------------------------------------

    def _task(self, start: Event) -> Iterator[str]:
        payload = start.payload
        who: Any = payload.get("principal")
        who = who if isinstance(who, dict) and "id" in who else {"id": show(who), "on_behalf_of": None}
        yield from self._front(start, {"purpose": show(payload.get("purpose")), "requests": self._requests})
        behalf = f" on behalf of {show(who['on_behalf_of'])}" if who.get("on_behalf_of") else ""
        yield from ("", "# Task", "", escape(f"For {show(who['id'])}{behalf}, since {start.ts}."))
        for event in self._prompts:
            yield from ("", f"## {event.ts}", "", *quote(show(event.payload.get("text"))))
        if self._requests > MAX_ROWS:
            yield from ("", f"And {self._requests - MAX_ROWS} more; see the ledger.")
        yield from self._tasks.lines("Tasks")

    def _context(self, start: Event) -> Iterator[str]:
        payload = start.payload
        yield from self._front(
            start,
            {name: show(payload.get(name)) for name in ("charter", "profile", "enforcement", "durability", "kernel")},
        )
        yield from ("", "# Context")
        for name, event in self._plans.items():
            yield from ("", f"## {name.removeprefix('context.').capitalize()}", "", *block(dict(event.payload)))
        yield from self._states.lines("States of the run")
        yield from self._decisions.lines("What was decided")

    def _outcome(self, start: Event) -> Iterator[str]:
        snapshot = self._snapshot
        counts = {"denied": len(snapshot.denied), "errors": len(snapshot.errors), "unknown": snapshot.unknown}
        yield from self._front(start, {"ok": snapshot.ok, "calls": snapshot.calls.total(), **counts})
        yield from ("", "# Outcome", "", escape(self._ending()))
        for event in self._replies:
            yield from ("", "## Reply", "", *quote(show(event.payload.get("reply"))))
        yield from self._calls.lines("What calls came to")
        yield from self._tasks.lines("Tasks")

    def _ending(self) -> str:
        if self._end is None:
            return "It has not ended."
        payload = self._end.payload
        how = "fine" if payload.get("ok") is True else "not fine"
        return f"It ended at {self._end.ts}, {how}: {show(payload.get('reason'))}"

    def _front(self, start: Event, more: Object) -> list[str]:
        ended = self._end.ts if self._end else None
        return front({"session": self._session, "started": start.ts, "ended": ended, **more})


def render(session: str, events: Iterable[Event]) -> dict[str, str]:
    """Return the pages of a *session*, by name; raises `LedgerError`."""
    docs = WorkdocPages(session)
    for event in events:
        docs.step(event)
    return docs.pages()


def write(setting: bool | str, root: Path, state: Path, session: str) -> list[Path]:
    """Write the pages of *session* and return their paths; raises `OSError` or `DeedbookError`.

    *setting* is the value of ``workdocs:``: whether to write pages, or the folder below the workspace's *root* for
    them. Without a folder they lie in its *state* folder.
    """
    if not SESSION_ID.fullmatch(session):
        raise LedgerError(fault("SESSION_NOT_FOUND", f"there is no session {session!r}"))
    above, folder = (root, setting) if isinstance(setting, str) else (state, FOLDER)
    pages = render(session, read(state / "sessions" / session))
    with Folder.at(above) as above_folder:
        for name, text in pages.items():
            above_folder.replace(f"{folder}/{session}/{name}", text.encode(), synced=False)
    return [above / folder / session / name for name in pages]
