"""Workdocs: what a session was asked, what it went by, and what came of it, as three pages for people.

They are renderings of the session's ledger and never read back; the same events always make the same bytes. Text of
people and models is quoted and escaped, data stands in blocks, and what is sealed in the ledger stays so. Of a long
session each table has its first rows.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.contract import Event, Object
from deedbook.format.errors import LedgerError, fault
from deedbook.format.event_text import show, summary
from deedbook.format.events import SESSION_ID
from deedbook.format.files import Folder
from deedbook.format.folds import SnapshotFold
from deedbook.format.markdown import block, escape, front, quote, row
from deedbook.format.reader import read

TASK: Final = "task.md"
CONTEXT: Final = "context.md"
OUTCOME: Final = "outcome.md"
FOLDER: Final = "workdocs"
"""Where they are written in the state folder, if the workspace names no other place."""
MOST: Final = 200
"""How many rows a table has, and how many requests are quoted."""

_PLANS: Final = ("context.clarified", "context.scoped", "context.planned")
_DECIDED: Final = frozenset(
    {
        "tool.denied", "task.denied", "approval.requested", "approval.granted", "approval.refused", "approval.expired",
        "approval.withdrawn", "schema.violation", "skill.invoke", "agent.transition",
    }
)  # fmt: skip
_ENDS: Final = frozenset(
    {
        "tool.result", "tool.error", "flow.result", "flow.error", "llm.error", "memory.result", "memory.error",
        "tool.denied", "worker.report",
    }
)  # fmt: skip


@attrs.define
class _Rows:
    """The rows of a table, the first `MOST`, and how many there were."""

    rows: list[str] = attrs.field(factory=list)
    count: int = 0

    def add(self, event: Event) -> None:
        self.count += 1
        if self.count <= MOST:
            self.rows.append(row((event.ts, event.type, summary(event))))

    def lines(self, title: str) -> Iterator[str]:
        if self.rows:
            yield from ("", f"## {title}", "", "| time | what | more |", "|---|---|---|", *self.rows)
        if self.count > MOST:
            yield from ("", f"And {self.count - MOST} more; see the ledger.")


class Workdocs:
    """The fold of the events of *session* (its id) that makes its pages."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._fold = SnapshotFold()
        self._came = self._fold.start()
        self._start: Event | None = None
        self._end: Event | None = None
        self._asked: list[Event] = []
        self._requests = 0
        self._replies: list[Event] = []
        self._plans: dict[str, Event] = {}
        self._states, self._decided, self._calls, self._tasks = _Rows(), _Rows(), _Rows(), _Rows()

    def step(self, event: Event) -> None:
        """Take *event* in."""
        self._came = self._fold.step(self._came, event)
        if event.type == "session.start":
            self._start = event
        elif event.type == "session.end":
            self._end = event
        elif event.type == "user.message":
            self._requests += 1
            self._asked = [*self._asked, event][:MOST]
        elif event.type == "agent.reply":
            self._replies = [event]
        self._keep(event)

    def _keep(self, event: Event) -> None:
        if event.type in _PLANS:
            self._plans[event.type] = event
        gate = event.type in ("hook.fired", "policy.check") and event.payload.get("decision") != "allow"
        for rows, wanted in (
            (self._states, event.type.startswith("context.") and event.type != "context.noted"),
            (self._decided, gate or event.type in _DECIDED),
            (self._calls, event.type in _ENDS),
            (self._tasks, event.type.startswith("task.")),
        ):
            if wanted:
                rows.add(event)

    def pages(self) -> dict[str, str]:
        """Return the pages by name; raises `LedgerError` where there was no ``session.start``."""
        if self._start is None:
            raise LedgerError(fault("LEDGER_UNSOUND", "it does not begin with session.start; verify it"))
        made = {TASK: self._task(self._start), CONTEXT: self._context(self._start), OUTCOME: self._outcome(self._start)}
        return {name: "\n".join(lines) + "\n" for name, lines in made.items()}

    # --- the pages ----------------------------------------------------------------------------------------------------

    def _task(self, start: Event) -> Iterator[str]:
        said = start.payload
        who: Any = said.get("principal")
        who = who if isinstance(who, dict) and "id" in who else {"id": show(who), "on_behalf_of": None}
        yield from self._front(start, {"purpose": show(said.get("purpose")), "requests": self._requests})
        behalf = f" on behalf of {show(who['on_behalf_of'])}" if who.get("on_behalf_of") else ""
        yield from ("", "# Task", "", escape(f"For {show(who['id'])}{behalf}, since {start.ts}."))
        for event in self._asked:
            yield from ("", f"## {event.ts}", "", *quote(show(event.payload.get("text"))))
        if self._requests > MOST:
            yield from ("", f"And {self._requests - MOST} more; see the ledger.")
        yield from self._tasks.lines("Tasks")

    def _context(self, start: Event) -> Iterator[str]:
        said = start.payload
        yield from self._front(
            start,
            {name: show(said.get(name)) for name in ("charter", "profile", "enforcement", "durability", "kernel")},
        )
        yield from ("", "# Context")
        for name, event in self._plans.items():
            yield from ("", f"## {name.removeprefix('context.').capitalize()}", "", *block(dict(event.payload)))
        yield from self._states.lines("States of the run")
        yield from self._decided.lines("What was decided")

    def _outcome(self, start: Event) -> Iterator[str]:
        came = self._came
        told = {"denied": len(came.denied), "errors": len(came.errors), "unknown": came.unknown}
        yield from self._front(start, {"ok": came.ok, "calls": came.calls.total(), **told})
        yield from ("", "# Outcome", "", escape(self._ending()))
        for event in self._replies:
            yield from ("", "## Reply", "", *quote(show(event.payload.get("reply"))))
        yield from self._calls.lines("What calls came to")
        yield from self._tasks.lines("Tasks")

    def _ending(self) -> str:
        if self._end is None:
            return "It has not ended."
        said = self._end.payload
        how = "fine" if said.get("ok") is True else "not fine"
        return f"It ended at {self._end.ts}, {how}: {show(said.get('reason'))}"

    def _front(self, start: Event, more: Object) -> list[str]:
        ended = self._end.ts if self._end else None
        return front({"session": self._session, "started": start.ts, "ended": ended, **more})


def rendered(session: str, events: Iterable[Event]) -> dict[str, str]:
    """Return the pages of a *session*, by name; raises `LedgerError`."""
    docs = Workdocs(session)
    for event in events:
        docs.step(event)
    return docs.pages()


def write(said: bool | str, root: Path, state: Path, session: str) -> list[Path]:
    """Write the pages of *session* anew and return where they are; raises `OSError` or `DeedbookError`.

    *said* stands under ``workdocs:``: whether there are any, or the folder below the workspace's *root* that they go
    to. Else they lie in its *state* folder.
    """
    if not SESSION_ID.fullmatch(session):
        raise LedgerError(fault("SESSION_NOT_FOUND", f"there is no session {session!r}"))
    above, folder = (root, said) if isinstance(said, str) else (state, FOLDER)
    pages = rendered(session, read(state / "sessions" / session))
    with Folder.at(above) as held:
        for name, text in pages.items():
            held.replace(f"{folder}/{session}/{name}", text.encode(), synced=False)
    return [above / folder / session / name for name in pages]
