"""All tasks of a workspace: a fold of the ``task.*`` events in its ledger, with the position of each event.

Memory holds the state of every task and the positions of its events; arguments and results are read on demand. The
writers ensure that of several concurrent changes of a task one succeeds (`TaskBook.refresh` under the ledger's lock);
the fold relies on that.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import RLock
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import attrs

from deedbook.contract import Event, Object
from deedbook.format.errors import LedgerError, TaskError, fault
from deedbook.format.events import Line, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import Follower, is_open
from deedbook.format.sealed import is_sealed, open_values
from deedbook.ledger.journal import is_replaced

State: TypeAlias = Literal["ready", "running", "waiting", "succeeded", "failed", "denied", "unknown", "deleted"]
STATES: Final = ("ready", "running", "waiting", "succeeded", "failed", "denied", "unknown", "deleted")
"""The states of a task: ``waiting`` for a person; ``unknown`` if the outcome was lost and a person has to decide."""
RUNNABLE: Final = frozenset({"ready", "waiting", "failed", "denied"})
TASK_ID: Final = re.compile(r"t-[0-9a-f]{32}")
KEY: Final = re.compile(r"[!-~]{1,128}")
"""The form of an idempotency key: up to 128 printable ASCII characters without spaces."""

Owner: TypeAlias = tuple[str, str | None]
"""The owner of a task: the principal's id, and the id of the principal that it acts for."""


class EventPosition(NamedTuple):
    """The position of a task's event in the workspace ledger: its type, its bytes, its span."""

    type: str
    start: int
    end: int
    span: str


@attrs.frozen(eq=False)
class TaskRecord:
    """One task as the ledger had it at the last refresh; every change makes a new record.

    *session* and *span* are where its last run began in a session's ledger. *charter* is the digest that it is bound
    to, *key* its idempotency key; *direct*: it is the record of a direct run. *approvals* are the requests of its runs
    that wait for a person.
    """

    id: str
    ability: str
    owner: Owner
    charter: str
    created: str
    latest: str
    key: str | None = None
    direct: bool = False
    state: State = "ready"
    runs: int = 0
    session: str = ""
    span: str = ""
    approvals: tuple[str, ...] = ()
    marks: tuple[EventPosition, ...] = ()

    def last(self, *types: str) -> EventPosition | None:
        """Return the position of the last event of one of *types*."""
        return next((mark for mark in reversed(self.marks) if mark.type in types), None)


class TaskBook:
    """The tasks of a state folder, kept up to date by `refresh`; safe in threads.

    *active* holds the ids of the tasks that users of this book run now.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        with ExitStack() as undo:
            self._file = undo.enter_context(folder.open(LEDGER_FILE))
            self._follow = Follower(folder.open(LEDGER_FILE), place=f"{folder.path}/{LEDGER_FILE}")
            undo.pop_all()
        self._tasks: dict[str, TaskRecord] = {}
        self._keys: dict[tuple[Owner, str], str] = {}
        self._lock = RLock()
        self.active: set[str] = set()

    @classmethod
    def open(cls, state: Path) -> Self:
        """Read the tasks of the *state* folder; raises `FileNotFoundError` where there is no workspace ledger."""
        book = cls(Folder.at(state / "workspace"))
        try:
            book.refresh()
        except BaseException:
            book.close()
            raise
        return book

    @property
    def state(self) -> Path:
        """The state folder."""
        return Path(self._folder.path).parent

    # --- reading -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Apply the events recorded since the last refresh; raises `LedgerError` for a line that was changed."""
        with self._lock:
            if is_replaced(self._file.fileno()):
                self._reload()
            start = self._follow.end
            for line in self._follow():
                if line.event_type.startswith("task."):
                    self._apply(line, EventPosition(line.event_type, start, self._follow.end, line.span_id))
                start = self._follow.end

    def _reload(self) -> None:
        """Read everything again: another file has replaced the ledger, with other positions."""
        self._file.close()
        self._follow.close()
        self._file = self._folder.open(LEDGER_FILE)
        self._follow = Follower(self._folder.open(LEDGER_FILE), place=f"{self._folder.path}/{LEDGER_FILE}")
        self._tasks, self._keys = {}, {}

    def __iter__(self) -> Iterator[TaskRecord]:
        with self._lock:
            return iter(list(self._tasks.values()))

    def get(self, identity: str) -> TaskRecord | None:
        """Return the task with that id, if there is one."""
        return self._tasks.get(identity)

    def find_by_key(self, owner: Owner, key: str) -> TaskRecord | None:
        """Return the task that *owner* created with an idempotency *key*, if there is one."""
        return self._tasks.get(self._keys.get((owner, key), ""))

    def find(self, name: str) -> TaskRecord:
        """Return the task with the id or id prefix *name*, or the ``last`` one; raises `TaskError`."""
        if name == "last" and self._tasks:
            return list(self._tasks.values())[-1]
        wanted = name if name.startswith("t-") else f"t-{name}"
        found = [each for identity, each in self._tasks.items() if identity.startswith(wanted)] if name else []
        if wanted in self._tasks or len(found) == 1:
            return self._tasks.get(wanted) or found[0]
        why = f"{len(found)} tasks begin with {name!r}; give more of the id" if found else f"there is no task {name!r}"
        raise TaskError(fault("TASK_NOT_FOUND", f"{why[:200]}; `deedbook tasks list --all` lists them"))

    def get_state(self, task: TaskRecord) -> State:
        """Return the state of *task*; a running task is ``unknown`` if no process writes its session any more."""
        if task.state != "running":
            return task.state
        with Folder.at(self.state) as state:
            return "running" if is_open(state, task.session) else "unknown"

    def read_event(self, mark: EventPosition) -> Event:
        """Return the event at *mark* as recorded; parts of it may be sealed."""
        raw = os.pread(self._file.fileno(), mark.end - mark.start, mark.start)
        return split_line(raw, place=f"{self._folder.path}/{LEDGER_FILE}").event

    def read_events(self, task: TaskRecord) -> list[Event]:
        """Return all events of *task* in the workspace ledger, in order."""
        return [self.read_event(mark) for mark in task.marks]

    def read_payload(self, task: TaskRecord, *types: str) -> dict[str, Any]:
        """Return the payload of the last event of one of *types* with sealed values opened; raises `TaskError`."""
        mark = task.last(*types)
        assert mark
        try:
            payload: dict[str, Any] = open_values(self._folder, dict(self.read_event(mark).payload))
        except FileNotFoundError:
            why = f"a sealed value of task {task.id} was erased; make another task"
            raise TaskError(fault("TASK_INCOMPLETE", why)) from None
        return payload

    def list_runs(self, task: TaskRecord) -> frozenset[tuple[str, str]]:
        """Return where each run of *task* began: the session, and the span there."""
        started = (self.read_event(mark).payload for mark in task.marks if mark.type == "task.started")
        return frozenset((str(payload["session"]), str(payload["span"])) for payload in started)

    def read_first_args(self, task: TaskRecord) -> Any:
        """Return the arguments that *task* was created with; raises `TaskError`."""
        return self.read_payload(attrs.evolve(task, marks=task.marks[:1]), "task.created")["args"]

    def close(self) -> None:
        """Close the files."""
        self._follow.close()
        self._file.close()
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the fold ----------------------------------------------------------------------------------------------------

    def _apply(self, line: Line, mark: EventPosition) -> None:
        payload = line.event.payload
        identity = payload.get("task")
        if not isinstance(identity, str) or not TASK_ID.fullmatch(identity):
            return
        if line.event_type == "task.created" and identity not in self._tasks:
            self._create(identity, payload, line, mark)
        elif identity in self._tasks and line.event_type in _TRANSITIONS:
            task = self._tasks[identity]
            changes = _TRANSITIONS[line.event_type](
                task, {name: self._open_sealed(payload[name]) for name in _FIELDS & payload.keys()}
            )
            self._tasks[identity] = attrs.evolve(task, marks=(*task.marks, mark), latest=line.ts, **changes)

    def _create(self, identity: str, payload: Object, line: Line, mark: EventPosition) -> None:
        changes = {name: self._open_sealed(payload[name]) for name in _FIELDS & payload.keys()}
        who = changes.get("principal") or {}
        owner = (str(who.get("id", "")), who.get("on_behalf_of"))
        task = TaskRecord(
            identity, str(changes["ability"]), owner, str(changes["charter"]), line.ts, line.ts,
            key=changes.get("key"), direct=changes.get("direct") is True, marks=(mark,),
        )  # fmt: skip
        self._tasks[identity] = task
        if task.key is not None:
            self._keys.setdefault((owner, task.key), identity)

    def _open_sealed(self, value: Any) -> Any:
        """Return a member that the fold needs; ``None`` for one that was sealed and erased."""
        if not isinstance(value, dict) or not (is_sealed(value) or any(map(is_sealed, value.values()))):
            return value
        try:
            return open_values(self._folder, value)
        except (FileNotFoundError, LedgerError):
            return None


_FIELDS: Final = frozenset(
    {"ability", "principal", "charter", "key", "direct", "session", "span", "run", "state", "approval", "answer"}
)


def _apply_updated(_: TaskRecord, payload: Object) -> Object:
    return {"charter": str(payload["charter"]), "state": "ready", "approvals": ()}


def _apply_started(task: TaskRecord, payload: Object) -> Object:
    return {"state": "running", "runs": task.runs + 1, "session": str(payload["session"]), "span": str(payload["span"])}


def _apply_ended(task: TaskRecord, payload: Object) -> Object:
    approval = payload.get("approval")
    pending = () if approval is None or approval in task.approvals else (str(approval),)
    state = payload["state"] if payload["state"] in STATES else "unknown"
    return {"state": state, "approvals": (*task.approvals, *pending)}


def _apply_decided(_: TaskRecord, payload: Object) -> Object:
    return {"state": "succeeded" if payload["answer"] == "happened" else "ready"}


def _apply_deleted(_: TaskRecord, __: Object) -> Object:
    return {"state": "deleted"}


_TRANSITIONS: Final[Mapping[str, Callable[[TaskRecord, Object], Object]]] = {
    "task.updated": _apply_updated,
    "task.started": _apply_started,
    "task.ended": _apply_ended,
    "task.decided": _apply_decided,
    "task.deleted": _apply_deleted,
}
