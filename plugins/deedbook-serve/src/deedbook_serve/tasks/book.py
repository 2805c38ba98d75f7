"""All tasks of a workspace: a fold of the ``task.*`` events in its ledger, which keeps where each event stands.

Of every task memory holds its state and where its events are; arguments and results are read when they are asked for.
The writers see to it that of all who want to do something to a task one succeeds (`Book.refresh` under the ledger's
lock); the fold believes them.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
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
"""How a task can stand: ``waiting`` is for a person, ``unknown`` one whose outcome nobody knows, who has to decide."""
RUNNABLE: Final = frozenset({"ready", "waiting", "failed", "denied"})
TASK_ID: Final = re.compile(r"t-[0-9a-f]{32}")
KEY: Final = re.compile(r"[!-~]{1,128}")
"""What an idempotency key may be: up to 128 printable ASCII characters without spaces."""

Owner: TypeAlias = tuple[str, str | None]
"""Whose a task is: the principal's id, and on whose behalf it acts."""


class Mark(NamedTuple):
    """Where an event of a task stands in the workspace ledger: its type, its bytes, its span."""

    type: str
    start: int
    end: int
    span: str


@attrs.frozen(eq=False)
class Kept:
    """One task, as the ledger had it when it was looked at; whatever happens to it makes another of these.

    *session* and *span* are where its last run began in a session's ledger. *charter* is the digest that it is bound
    to, *key* its idempotency key; *direct*: it is the record of a direct run. *approvals* are the requests that its
    runs have left for a person.
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
    marks: tuple[Mark, ...] = ()

    def last(self, *types: str) -> Mark | None:
        """Return where the last event of one of *types* stands."""
        return next((mark for mark in reversed(self.marks) if mark.type in types), None)


class Book:
    """The tasks of a state folder, kept up to date by `refresh`; safe in threads.

    *active* holds the ids of those that run on account of who shares this book.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._file = folder.open(LEDGER_FILE)
        self._follow = Follower(folder.open(LEDGER_FILE), place=f"{folder.path}/{LEDGER_FILE}")
        self._tasks: dict[str, Kept] = {}
        self._keys: dict[tuple[Owner, str], str] = {}
        self._turn = RLock()
        self.active: set[str] = set()

    @classmethod
    def of(cls, state: Path) -> Self:
        """Read the tasks of the *state* folder; raises `FileNotFoundError` where there is no workspace ledger."""
        made = cls(Folder.at(state / "workspace"))
        made.refresh()
        return made

    @property
    def state(self) -> Path:
        """The state folder."""
        return Path(self._folder.path).parent

    # --- reading ------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Take in what was recorded since; raises `LedgerError` where a line is not what was written."""
        with self._turn:
            if is_replaced(self._file.fileno()):
                self._begin_again()
            start = self._follow.end
            for line in self._follow():
                if line.event_type.startswith("task."):
                    self._step(line, Mark(line.event_type, start, self._follow.end, line.span_id))
                start = self._follow.end

    def _begin_again(self) -> None:
        """Read all anew: another file took the ledger's place, in which the events stand elsewhere."""
        self._file.close()
        self._follow.close()
        self._file = self._folder.open(LEDGER_FILE)
        self._follow = Follower(self._folder.open(LEDGER_FILE), place=f"{self._folder.path}/{LEDGER_FILE}")
        self._tasks, self._keys = {}, {}

    def __iter__(self) -> Iterator[Kept]:
        with self._turn:
            return iter(list(self._tasks.values()))

    def get(self, identity: str) -> Kept | None:
        """Return the task with that id, if there is one."""
        return self._tasks.get(identity)

    def keyed(self, owner: Owner, key: str) -> Kept | None:
        """Return what *owner* has made with an idempotency *key*, if anything."""
        return self._tasks.get(self._keys.get((owner, key), ""))

    def find(self, name: str) -> Kept:
        """Return the task that *name* is, or begins, or the ``last``; raises `TaskError`."""
        if name == "last" and self._tasks:
            return list(self._tasks.values())[-1]
        wanted = name if name.startswith("t-") else f"t-{name}"
        found = [each for identity, each in self._tasks.items() if identity.startswith(wanted)] if name else []
        if wanted in self._tasks or len(found) == 1:
            return self._tasks.get(wanted) or found[0]
        why = f"{len(found)} tasks begin with {name!r}; give more of the id" if found else f"there is no task {name!r}"
        raise TaskError(fault("TASK_NOT_FOUND", f"{why[:200]}; `deedbook tasks list --all` lists them"))

    def standing(self, task: Kept) -> State:
        """Return how *task* stands: one that was running is ``unknown`` where nobody writes its session any more."""
        if task.state != "running":
            return task.state
        with Folder.at(self.state) as state:
            return "running" if is_open(state, task.session) else "unknown"

    def event(self, mark: Mark) -> Event:
        """Return the event at *mark* as recorded; parts of it may be sealed."""
        raw = os.pread(self._file.fileno(), mark.end - mark.start, mark.start)
        return split_line(raw, place=f"{self._folder.path}/{LEDGER_FILE}").event

    def events(self, task: Kept) -> list[Event]:
        """Return all that was recorded of *task* in the workspace ledger, in order."""
        return [self.event(mark) for mark in task.marks]

    def opened(self, task: Kept, *types: str) -> dict[str, Any]:
        """Return the payload of the last event of one of *types* with what is sealed in it; raises `TaskError`."""
        mark = task.last(*types)
        assert mark
        try:
            payload: dict[str, Any] = open_values(self._folder, dict(self.event(mark).payload))
        except FileNotFoundError:
            why = f"a sealed value of task {task.id} was erased; make another task"
            raise TaskError(fault("TASK_INCOMPLETE", why)) from None
        return payload

    def runs(self, task: Kept) -> frozenset[tuple[str, str]]:
        """Return where each run of *task* began: the session, and the span there."""
        begun = (self.event(mark).payload for mark in task.marks if mark.type == "task.started")
        return frozenset((str(said["session"]), str(said["span"])) for said in begun)

    def made(self, task: Kept) -> Any:
        """Return the arguments that *task* was first made with; raises `TaskError`."""
        return self.opened(attrs.evolve(task, marks=task.marks[:1]), "task.created")["args"]

    def close(self) -> None:
        """Let go of the files."""
        self._follow.close()
        self._file.close()
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the fold -----------------------------------------------------------------------------------------------------

    def _step(self, line: Line, mark: Mark) -> None:
        said = line.event.payload
        identity = said.get("task")
        if not isinstance(identity, str) or not TASK_ID.fullmatch(identity):
            return
        if line.event_type == "task.created" and identity not in self._tasks:
            self._create(identity, said, line, mark)
        elif identity in self._tasks and line.event_type in _NEXT:
            task = self._tasks[identity]
            told = _NEXT[line.event_type](task, {name: self._open(said[name]) for name in _FOLDED & said.keys()})
            self._tasks[identity] = attrs.evolve(task, marks=(*task.marks, mark), latest=line.ts, **told)

    def _create(self, identity: str, said: Object, line: Line, mark: Mark) -> None:
        told = {name: self._open(said[name]) for name in _FOLDED & said.keys()}
        who = told.get("principal") or {}
        owner = (str(who.get("id", "")), who.get("on_behalf_of"))
        task = Kept(
            identity, str(told["ability"]), owner, str(told["charter"]), line.ts, line.ts,
            key=told.get("key"), direct=told.get("direct") is True, marks=(mark,),
        )  # fmt: skip
        self._tasks[identity] = task
        if task.key is not None:
            self._keys.setdefault((owner, task.key), identity)

    def _open(self, value: Any) -> Any:
        """Return a member that the fold needs; ``None`` for one that was sealed and erased."""
        if not isinstance(value, dict) or not (is_sealed(value) or any(map(is_sealed, value.values()))):
            return value
        try:
            return open_values(self._folder, value)
        except (FileNotFoundError, LedgerError):
            return None


_FOLDED: Final = frozenset(
    {"ability", "principal", "charter", "key", "direct", "session", "span", "run", "state", "approval", "answer"}
)


def _updated(_: Kept, said: Object) -> Object:
    return {"charter": str(said["charter"]), "state": "ready", "approvals": ()}


def _started(task: Kept, said: Object) -> Object:
    return {"state": "running", "runs": task.runs + 1, "session": str(said["session"]), "span": str(said["span"])}


def _ended(task: Kept, said: Object) -> Object:
    approval = said.get("approval")
    left = () if approval is None or approval in task.approvals else (str(approval),)
    state = said["state"] if said["state"] in STATES else "unknown"
    return {"state": state, "approvals": (*task.approvals, *left)}


def _decided(_: Kept, said: Object) -> Object:
    return {"state": "succeeded" if said["answer"] == "happened" else "ready"}


def _deleted(_: Kept, __: Object) -> Object:
    return {"state": "deleted"}


_NEXT: Final[Mapping[str, Callable[[Kept, Object], Object]]] = {
    "task.updated": _updated,
    "task.started": _started,
    "task.ended": _ended,
    "task.decided": _decided,
    "task.deleted": _deleted,
}
