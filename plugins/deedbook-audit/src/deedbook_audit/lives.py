"""What a verifier checks about tasks: each is made once, runs one run at a time, and rests when it has succeeded.

It is independent of who wrote the ledger, and takes the recorded events as they come. What is sealed is not compared.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format.families import OUTCOMES

_RESTS: Final = frozenset({"ready", "waiting", "failed", "denied"})
_LOST: Final = frozenset({"running", "unknown"})
ABOUT: Final = frozenset(
    {"task.created", "task.updated", "task.started", "task.ended", "task.decided", "task.deleted", *OUTCOMES}
)
"""The events that are looked at."""


@attrs.define
class _Life:
    """One task as far as the ledger was read: where it was made and last begun, how it stands, how often it ran.

    *state* is empty where the payload that said it was taken out, *named* says whether a line was seen with its name.
    """

    made: bytes
    begun: bytes = b""
    state: str = "ready"
    runs: int = 0
    named: bool = True


class Lives:
    """The tasks of one ledger: `check` every event in order, and be told what is wrong with it.

    *workspace* says whether it is the workspace ledger, which has all of a task's life, or a session's, which has what
    was done in it.
    """

    def __init__(self, *, workspace: bool) -> None:
        self._workspace = workspace
        self._lives: dict[str, _Life] = {}
        self._places: dict[bytes, _Life] = {}
        self._runs: dict[bytes, tuple[Any, Any] | None] = {}
        self._called: set[bytes] = set()
        self._ended: set[bytes] = set()

    def check(self, kind: str, span: bytes, parent: bytes | None, payload: Any) -> Iterator[str]:
        """Yield what is wrong with the next event, as far as it is about a task."""
        above = parent or b""
        if kind in OUTCOMES:
            yield from self._call(above)
            return
        identity = payload["task"]
        if not isinstance(identity, str):
            return
        yield from self._step(kind, span, above, identity, payload) if self._workspace else ()
        yield from () if self._workspace else self._seen(kind, span, above, identity, payload)

    def gone(self, kind: str, span: bytes, parent: bytes | None) -> Iterator[str]:
        """Yield what is wrong with the next event where its payload was taken out: its place says of whom it is."""
        above = parent or b""
        if kind in OUTCOMES:
            yield from self._call(above)
        elif not self._workspace:
            if kind == "task.started":
                self._runs[span] = None
        elif kind == "task.created":
            self._places[span] = _Life(span, named=False)
        elif life := self._places.get(above):
            yield from self._placed(kind, above, life)
            yield from self._move(kind, span, life, {"state": "", "answer": ""})

    def _call(self, above: bytes) -> Iterator[str]:
        if above in self._runs:
            if above in self._called:
                yield "a second call under one run of a task"
            self._called.add(above)

    # --- in a session -------------------------------------------------------------------------------------------------

    def _seen(self, kind: str, span: bytes, above: bytes, identity: str, payload: Object) -> Iterator[str]:
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

    # --- in the workspace ledger --------------------------------------------------------------------------------------

    def _step(self, kind: str, span: bytes, above: bytes, identity: str, payload: Object) -> Iterator[str]:
        life = self._lives.get(identity)
        if kind == "task.created":
            if life:
                yield "a task is made a second time"
            self._lives[identity] = self._places[span] = _Life(span)
            return
        found = self._places.get(above)
        if life is None and found and not found.named:
            life = self._lives[identity] = found
            life.named = True
        if life is None:
            yield f"{kind} of a task that was never made"
            return
        yield from self._placed(kind, above, life)
        yield from self._move(kind, span, life, payload)
        if payload.get("run", life.runs) != life.runs and isinstance(payload["run"], int):
            yield f"{kind} counts run {payload['run']}; it is run {life.runs}"

    def _placed(self, kind: str, above: bytes, life: _Life) -> Iterator[str]:
        if above != (life.begun if kind == "task.ended" else life.made):
            yield f"{kind} under another event than {'the run that it ends' if kind == 'task.ended' else 'its making'}"

    def _move(self, kind: str, span: bytes, life: _Life, payload: Object) -> Iterator[str]:
        allowed, move = _MOVES[kind]
        if life.state and life.state not in allowed:
            yield f"{kind} of a task that is {life.state}"
        move(life, span, payload)
        if kind == "task.started":
            self._places[span] = life


def _start(life: _Life, span: bytes, _: Object) -> None:
    life.begun, life.state, life.runs = span, "running", life.runs + 1


def _end(life: _Life, _: bytes, payload: Object) -> None:
    life.state = payload["state"] if isinstance(payload["state"], str) else "unknown"


def _decide(life: _Life, _: bytes, payload: Object) -> None:
    life.state = "succeeded" if payload["answer"] == "happened" else "ready" if payload["answer"] else ""


def _update(life: _Life, _: bytes, __: Object) -> None:
    life.state = "ready"


def _delete(life: _Life, _: bytes, __: Object) -> None:
    life.state = "deleted"


_MOVES: Final[Mapping[str, tuple[frozenset[str], Callable[[_Life, bytes, Object], None]]]] = MappingProxyType(
    {
        "task.updated": (_RESTS, _update),
        "task.started": (_RESTS, _start),
        "task.ended": (_LOST | {"waiting"}, _end),
        "task.decided": (_LOST, _decide),
        "task.deleted": (_RESTS | {"succeeded"}, _delete),
    }
)
