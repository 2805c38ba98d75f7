"""Where the tasks of a workspace stand: a fold of the ledgers of their sessions."""

import os
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs

from deedbook.call.queue import ApprovalQueue
from deedbook.contract import Event
from deedbook.format.errors import DeedbookError
from deedbook.format.events import EXCISED_KEY, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import SEALED, read_lines, summarise
from deedbook.format.sealed import open_values
from deedbook_flow_swe import events as names
from deedbook_flow_swe.definition import PREFIX

from .state import AWAITING_HUMAN, DONE, ENDS, FAILED, HALTED, ROLLED_BACK
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


class TaskBoard:
    """The tasks of the sessions below a *state* folder; reading again costs what was recorded since.

    A session that cannot be read is left out: `deedbook verify` reports it. Close the board after use.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._sessions: dict[str, _SessionReader] = {}
        self._requests: ApprovalQueue | None = None

    def list_rows(self) -> list[TaskRow]:
        """Return the tasks as they stand now, in the order of their sessions' beginning."""
        names = _list_folders(self._state / "sessions")
        self._sessions = {name: self._sessions.get(name) or _SessionReader(self._state, name) for name in names}
        for each in self._sessions.values():
            each.refresh()
        ordered = sorted(self._sessions.items(), key=lambda each: (each[1].begun, each[0]))
        rows = [attrs.evolve(each.row, history=[*each.row.history]) for _, each in ordered if each.row is not None]
        for row in rows:
            if row.session_state == "ended" and row.state not in ENDS:
                row.state = FAILED  # such as a session that `deedbook sessions close` has ended
        asking = [row for row in rows if row.approval and row.session_state == "suspended"]
        answered = self._find_answered() if asking else frozenset()
        for row in asking:
            if row.approval in answered:
                row.state, row.approval = ANSWERED, None
        return rows

    def _find_answered(self) -> frozenset[str]:
        """Return the requests that an approver has answered, and with which no run has gone on."""
        try:
            if self._requests is None:
                self._requests = ApprovalQueue.of(self._state)
            self._requests.refresh()
        except FileNotFoundError:
            return frozenset()
        return frozenset(each.id for each in self._requests if each.answer and not each.used and not each.withdrawn)

    def close(self) -> None:
        """Close the queue of approvals."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None


class _SessionReader:
    """Reads the ledger of a session as it grows: *row* is the task in it, if there is one.

    Reading begins anew if the file was replaced, cut or edited, or if sealed values were added or erased.
    """

    def __init__(self, state: Path, name: str) -> None:
        self._state, self._name = state, name
        self._place = state / "sessions" / name / LEDGER_FILE
        self._seen: tuple[int, ...] = ()
        self._begin()

    def _begin(self) -> None:
        self.begun = ""
        self.row: TaskRow | None = None
        self._end, self._last = 0, b""

    def refresh(self) -> None:
        """Read what was recorded since the last time."""
        seen = self._look()
        changed = seen != self._seen
        try:
            if changed:
                self._read(seen)
            if self.row is not None and (changed or self.row.session_state != "ended"):
                with Folder.at(self._state) as state:
                    self.row.session_state = summarise(state, self._name).state
        except (DeedbookError, OSError) as problem:
            self._begin()
            seen = () if isinstance(problem, OSError) else seen  # what is no fault of the file is tried again
        self._seen = seen

    def _look(self) -> tuple[int, ...]:
        """Return what tells whether the ledger has changed: file, time of the sealed values, size, time."""
        try:
            ledger = self._place.stat()
        except OSError:
            return ()
        try:
            sealed = (self._place.parent / SEALED).stat().st_mtime_ns
        except OSError:
            sealed = 0
        return ledger.st_dev, ledger.st_ino, sealed, ledger.st_size, ledger.st_mtime_ns

    def _read(self, seen: tuple[int, ...]) -> None:
        grown = seen[:3] == self._seen[:3] and seen[3:4] > self._seen[3:4]
        if not grown:
            self._begin()
        with Folder.at(self._place.parent) as folder, folder.open(LEDGER_FILE) as file:
            if not self._follows(file):
                self._begin()
            file.seek(self._end)
            for raw in read_lines(file, str(self._place)):
                self.begun = self.begun or split_line(raw).ts
                self._end, self._last = self._end + len(raw), raw
                header = raw[:_HEADER]
                if any(kind in header for kind in _KINDS):
                    self._apply(split_line(raw).event, folder)

    def _follows(self, file: BinaryIO) -> bool:
        """Return whether the line that was read last is still where it was."""
        file.seek(self._end - len(self._last))
        return file.read(len(self._last)) == self._last

    def _apply(self, event: Event, folder: Folder) -> None:
        """Apply an event, unless it was excised or a value of it was erased."""
        begins = event.type == names.TASK_STARTED or str(event.payload.get("flow")).startswith(PREFIX)
        if EXCISED_KEY in event.payload or (self.row is None and not begins):
            return
        try:
            event = attrs.evolve(event, payload=open_values(folder, dict(event.payload)))
        except FileNotFoundError:
            return
        if self.row is None:
            self.row = _begin_row(event, self._name)
        else:
            self.row.apply(event)


def _list_folders(place: Path) -> list[str]:
    try:
        return [each.name for each in os.scandir(place)]
    except FileNotFoundError:
        return []


def _begin_row(event: Event, session: str) -> TaskRow:
    """Return the row of a task that begins with *event*: the prompt of its session, or the first event of its run."""
    said: Any = event.payload
    if event.type == names.TASK_STARTED:
        return TaskRow(task_id=said["task_id"], title=said["title"], pipeline=said["pipeline"], session=session)
    stated = read_object(said["text"])
    identity, title = str(stated.get("id", session)), str(stated.get("title", said["text"][:200]))
    return TaskRow(task_id=identity, title=title, pipeline=said["flow"].removeprefix(PREFIX), session=session)


_KINDS: Final = (b'"event_type":"swe.', b'"event_type":"session.', b'"event_type":"user.message"')
"""The lines that say where a task stands; the others are not parsed."""
_HEADER: Final = 1024
"""More than the bytes of a line before its payload."""
