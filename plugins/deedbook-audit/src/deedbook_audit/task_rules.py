"""The rules for tasks in one ledger: each is created once, runs one run at a time, and ends when it has succeeded.

The check is independent of the writer. Sealed values are not compared.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format.families import OUTCOMES

_IDLE: Final = frozenset({"ready", "waiting", "failed", "denied"})
_UNFINISHED: Final = frozenset({"running", "unknown"})
ABOUT: Final = frozenset(
    {"task.created", "task.updated", "task.started", "task.ended", "task.decided", "task.deleted", *OUTCOMES}
)
"""The event types that these rules check."""


@attrs.define
class _TaskState:
    """One task as far as the ledger was read: its creation and last start, its state, the number of its runs.

    *state* is empty if the payload with it was excised; *has_name* is true once a line with the task's name was read.
    """

    created: bytes
    started: bytes = b""
    state: str = "ready"
    runs: int = 0
    has_name: bool = True


class TaskRules:
    """The tasks of one ledger: call `check` for every event in order; it yields the violations.

    *workspace* is true for the workspace ledger, which holds the whole life of a task; a session's ledger holds what
    was done in it.
    """

    def __init__(self, *, workspace: bool) -> None:
        self._workspace = workspace
        self._tasks: dict[str, _TaskState] = {}
        self._places: dict[bytes, _TaskState] = {}
        self._runs: dict[bytes, tuple[Any, Any] | None] = {}
        self._called: set[bytes] = set()
        self._ended: set[bytes] = set()

    def check(self, kind: str, span: bytes, parent: bytes | None, payload: Any) -> Iterator[str]:
        """Yield the violations of the next event, if it concerns a task."""
        above = parent or b""
        if kind in OUTCOMES:
            yield from self._check_call(above)
            return
        identity = payload["task"]
        if not isinstance(identity, str):
            return
        yield from self._check_in_workspace(kind, span, above, identity, payload) if self._workspace else ()
        yield from () if self._workspace else self._check_in_session(kind, span, above, identity, payload)

    def check_excised(self, kind: str, span: bytes, parent: bytes | None) -> Iterator[str]:
        """Yield the violations of the next event, whose payload was excised: its parent identifies the task."""
        above = parent or b""
        if kind in OUTCOMES:
            yield from self._check_call(above)
        elif not self._workspace:
            if kind == "task.started":
                self._runs[span] = None
        elif kind == "task.created":
            self._places[span] = _TaskState(span, has_name=False)
        elif task := self._places.get(above):
            yield from self._check_parent(kind, above, task)
            yield from self._check_transition(kind, span, task, {"state": "", "answer": ""})

    def _check_call(self, above: bytes) -> Iterator[str]:
        if above in self._runs:
            if above in self._called:
                yield "a second call under one run of a task"
            self._called.add(above)

    # --- in a session ------------------------------------------------------------------------------------------------

    def _check_in_session(self, kind: str, span: bytes, above: bytes, identity: str, payload: Object) -> Iterator[str]:
        if payload["span"] != span.decode() and isinstance(payload["span"], str):
            yield f"{kind} names another event as its own"
        if kind == "task.started":
            self._runs[span] = identity, payload["run"]
        elif kind == "task.ended" and payload["source"] == "run":
            if above in self._runs and self._runs[above] is None:
                self._runs[above] = identity, payload["run"]
            if self._runs.get(above) != (identity, payload["run"]):
                yield "task.ended under no task.started of the same run"
            elif above in self._ended:
                yield "a second end of one run"
            self._ended.add(above)

    # --- in the workspace ledger -------------------------------------------------------------------------------------

    def _check_in_workspace(
        self, kind: str, span: bytes, above: bytes, identity: str, payload: Object
    ) -> Iterator[str]:
        task = self._tasks.get(identity)
        if kind == "task.created":
            if task:
                yield "a task is made a second time"
            self._tasks[identity] = self._places[span] = _TaskState(span)
            return
        found = self._places.get(above)
        if task is None and found and not found.has_name:
            task = self._tasks[identity] = found
            task.has_name = True
        if task is None:
            yield f"{kind} of a task that was never made"
            return
        yield from self._check_parent(kind, above, task)
        yield from self._check_transition(kind, span, task, payload)
        if payload.get("run", task.runs) != task.runs and isinstance(payload["run"], int):
            yield f"{kind} counts run {payload['run']}; it is run {task.runs}"

    def _check_parent(self, kind: str, above: bytes, task: _TaskState) -> Iterator[str]:
        if above != (task.started if kind == "task.ended" else task.created):
            yield f"{kind} under another event than {'the run that it ends' if kind == 'task.ended' else 'its making'}"

    def _check_transition(self, kind: str, span: bytes, task: _TaskState, payload: Object) -> Iterator[str]:
        allowed, move = _TRANSITIONS[kind]
        if task.state and task.state not in allowed:
            yield f"{kind} of a task that is {task.state}"
        move(task, span, payload)
        if kind == "task.started":
            self._places[span] = task


def _start(task: _TaskState, span: bytes, _: Object) -> None:
    task.started, task.state, task.runs = span, "running", task.runs + 1


def _end(task: _TaskState, _: bytes, payload: Object) -> None:
    task.state = payload["state"] if isinstance(payload["state"], str) else "unknown"


def _decide(task: _TaskState, _: bytes, payload: Object) -> None:
    task.state = "succeeded" if payload["answer"] == "happened" else "ready" if payload["answer"] else ""


def _update(task: _TaskState, _: bytes, __: Object) -> None:
    task.state = "ready"


def _delete(task: _TaskState, _: bytes, __: Object) -> None:
    task.state = "deleted"


_TRANSITIONS: Final[Mapping[str, tuple[frozenset[str], Callable[[_TaskState, bytes, Object], None]]]] = (
    MappingProxyType(
        {
            "task.updated": (_IDLE, _update),
            "task.started": (_IDLE, _start),
            "task.ended": (_UNFINISHED | {"waiting"}, _end),
            "task.decided": (_UNFINISHED, _decide),
            "task.deleted": (_IDLE | {"succeeded"}, _delete),
        }
    )
)
