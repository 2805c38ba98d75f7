"""Where the tasks of a workspace stand: a fold of the ledgers of their sessions."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.call.queue import open_queue
from deedbook.contract import Event
from deedbook.format.errors import ApprovalError, DeedbookError
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import read, summarise
from deedbook.format.sealed import open_values
from deedbook_flow_swe import events as names
from deedbook_flow_swe.definition import PREFIX

from .state import AWAITING_HUMAN, DONE, FAILED, HALTED, ROLLED_BACK
from .values import read_object

QUEUED: Final = "QUEUED"
BEGUN: Final = "BEGUN"
"""The state of a task whose session has begun, and that is in no phase yet."""
ANSWERED: Final = "ANSWERED"
"""The state of a task whose question a person has answered, and that nobody has gone on with yet."""
_ENDS: Final = {"done": DONE, "failed": FAILED, "halted": HALTED}


@attrs.define(kw_only=True)
class TaskRow:
    """A task: its *state*, the *session* in which it runs, and how that session is (``live``, ``suspended``, …).

    *approval* is the request that a person has to answer. *history* are the lines of its phases, blocks and moves.
    """

    task_id: str
    title: str
    pipeline: str
    state: str = BEGUN
    phase: str | None = None
    session: str | None = None
    session_state: str | None = None
    approval: str | None = None
    rollbacks: int = 0
    commit: str | None = None
    history: list[str] = attrs.field(factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return attrs.asdict(self)

    def apply(self, event: Event) -> None:
        """Apply the next event of its session."""
        said: Any = event.payload
        match event.type:
            case names.PHASE_STARTED:
                self.phase, self.state = said["phase"], str(said["phase"]).upper()
                unit = f" {said['unit']}" if said["unit"] else ""
                self.history.append(f"{said['phase']} {said['iteration']}{unit}: begins")
            case names.PHASE_BLOCKED:
                self.history.append(f"{said['phase']} {said['iteration']}: blocked by {said['by']}: {said['reason']}")
            case names.PHASE_COMPLETED if said["gate"]:
                self.history.append(f"{said['phase']} {said['iteration']}: {said['gate']}")
            case names.ROLLED_BACK:
                self.state, self.phase, self.rollbacks = ROLLED_BACK, said["to_phase"], self.rollbacks + 1
                self.history.append(f"{said['from_phase']} → {said['to_phase']}: {said['issue']}")
            case names.ESCALATED:
                self.state = AWAITING_HUMAN
                self.history.append(f"{said['phase']}: waits for a person: {said['reason']}")
            case names.ANSWERED:
                self.state = str(said["phase"]).upper()
                self.history.append(f"{said['phase']}: a person says {said['decision']}: {said['note']}")
            case names.TASK_ENDED:
                self.state, self.commit = _ENDS[said["state"]], said["commit"]
            case "session.suspended":
                self.approval = said["approval"]
            case "session.resumed":
                self.approval = None


def read_rows(state: Path) -> list[TaskRow]:
    """Return the tasks of the sessions below a *state* folder, in the order of their sessions' beginning.

    A session that cannot be read is left out: `deedbook verify` reports it.
    """
    found = [row for place in (state / "sessions").glob(f"*/{LEDGER_FILE}") for row in _read_session(state, place)]
    rows = [row for _, row in sorted(found, key=lambda each: (each[0], each[1].session))]
    asking = [row for row in rows if row.approval and row.session_state == "suspended"]
    answered = _find_answered(state) if asking else frozenset()
    for row in asking:
        if row.approval in answered:
            row.state, row.approval = ANSWERED, None
    return rows


def _find_answered(state: Path) -> frozenset[str]:
    """Return the requests that an approver has answered, and with which no run has gone on."""
    with suppress(ApprovalError), open_queue(state) as requests:
        return frozenset(each.id for each in requests if each.answer and not each.used and not each.withdrawn)
    return frozenset()


def _read_session(state: Path, place: Path) -> Iterator[tuple[str, TaskRow]]:
    raw = place.read_bytes()
    if b'"flow":"swe/' not in raw:
        return
    row: TaskRow | None = None
    begun = ""
    try:
        with Folder.at(place.parent) as folder, Folder.at(state) as outer:
            for event in _read_events(read(place), folder):
                begun = begun or event.ts
                if row is None:
                    row = _begin_row(event, place.parent.name)
                else:
                    row.apply(event)
            if row is not None:
                row.session_state = summarise(outer, place.parent.name).state
    except (DeedbookError, OSError):
        return
    if row is not None:
        yield begun, row


def _read_events(events: Iterable[Event], folder: Folder) -> Iterator[Event]:
    for event in events:
        if event.type.startswith("swe.") or event.type == "user.message":
            event = attrs.evolve(event, payload=open_values(folder, dict(event.payload)))  # noqa: PLW2901
        yield event


def _begin_row(event: Event, session: str) -> TaskRow | None:
    flow = event.payload.get("flow")
    if event.type != "user.message" or not isinstance(flow, str) or not flow.startswith(PREFIX):
        return None
    stated = read_object(event.payload["text"])
    identity, title = str(stated.get("id", session)), str(stated.get("title", event.payload["text"][:200]))
    return TaskRow(task_id=identity, title=title, pipeline=flow.removeprefix(PREFIX), session=session)
