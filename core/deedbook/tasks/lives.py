"""What a verifier checks about tasks: each is made once, runs one run at a time, and rests when it has succeeded.

It is independent of who wrote the ledger, and takes the recorded events as they come. What is sealed is not compared.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contracts import Object
from deedbook.events import OUTCOMES

_RESTS: Final = frozenset({"ready", "waiting", "failed", "denied"})
_LOST: Final = frozenset({"running", "unknown"})
ABOUT: Final = frozenset(
    {"task.created", "task.updated", "task.started", "task.ended", "task.decided", "task.deleted", *OUTCOMES}
)
"""The events that are looked at."""


@attrs.define
class _Life:
    """One task as far as the ledger was read: where it was made and last begun, how it stands, how often it ran."""

    made: bytes
    begun: bytes = b""
    state: str = "ready"
    runs: int = 0


class Lives:
    """The tasks of one ledger: `check` every event in order, and be told what is wrong with it.

    *workspace* says whether it is the workspace ledger, which has all of a task's life, or a session's, which has what
    was done in it.
    """

    def __init__(self, *, workspace: bool) -> None:
        self._workspace = workspace
        self._lives: dict[str, _Life] = {}
        self._runs: dict[bytes, tuple[Any, Any]] = {}
        self._called: set[bytes] = set()
        self._ended: set[bytes] = set()

    def check(self, kind: str, span: bytes, parent: bytes | None, payload: Any) -> Iterator[str]:
        """Yield what is wrong with the next event, as far as it is about a task."""
        above = parent or b""
        if kind in OUTCOMES:
            if above in self._runs:
                if above in self._called:
                    yield "a second call under one run of a task"
                self._called.add(above)
            return
        identity = payload["task"]
        if not isinstance(identity, str):
            return
        yield from self._step(kind, span, above, identity, payload) if self._workspace else ()
        yield from () if self._workspace else self._seen(kind, span, above, identity, payload)

    # --- in a session -------------------------------------------------------------------------------------------------

    def _seen(self, kind: str, span: bytes, above: bytes, identity: str, payload: Object) -> Iterator[str]:
        if payload["span"] != span.decode() and isinstance(payload["span"], str):
            yield f"{kind} names another event as its own"
        if kind == "task.started":
            self._runs[span] = identity, payload["run"]
        elif kind == "task.ended" and payload["source"] == "run":
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
            self._lives[identity] = _Life(span)
            return
        if life is None:
            yield f"{kind} of a task that was never made"
            return
        if above != (life.begun if kind == "task.ended" else life.made):
            yield f"{kind} under another event than {'the run that it ends' if kind == 'task.ended' else 'its making'}"
        allowed, move = _MOVES[kind]
        if life.state not in allowed:
            yield f"{kind} of a task that is {life.state}"
        move(life, span, payload)
        if payload.get("run", life.runs) != life.runs and isinstance(payload["run"], int):
            yield f"{kind} counts run {payload['run']}; it is run {life.runs}"


def _start(life: _Life, span: bytes, _: Object) -> None:
    life.begun, life.state, life.runs = span, "running", life.runs + 1


def _end(life: _Life, _: bytes, payload: Object) -> None:
    life.state = payload["state"] if isinstance(payload["state"], str) else "unknown"


def _decide(life: _Life, _: bytes, payload: Object) -> None:
    life.state = "succeeded" if payload["answer"] == "happened" else "ready"


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
