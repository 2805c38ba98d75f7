"""One run of a task: through the door as any call, and what it came to, recorded."""

import os
import platform
import sys
import time
from contextlib import suppress
from typing import Any, Final

import attrs

from deedbook.call.door import Door
from deedbook.call.handlers import Ticket
from deedbook.call.session import Session
from deedbook.contract import Json, Object
from deedbook.format.errors import DeedbookError, DomainError, Err, Ok, Result, fault

from .aftermath import Aftermath
from .book import Kept
from .task_log import TaskLog

_UNBEGUN: Final = frozenset({"LEDGER_BROKEN", "LEDGER_LOCKED", "SESSION_ENDED", "CANCELLED"})
"""Why a call was not begun that may be tried again as it is."""
DECIDE: Final = "deedbook tasks decide {} --happened, or --did-not"
"""How a person says what became of a task whose outcome was lost; takes its id."""


@attrs.frozen(kw_only=True)
class Ran:
    """What a run gave: the *result*, and what hooks said of the call before it was made (``ability_guard``).

    *task* is the task's id (``None``: a direct run that nobody can name again). *recorded*: it is the result of an
    earlier run, and nothing was done now.
    """

    result: Json
    task: str | None = None
    signals: Object = attrs.field(factory=dict)
    recorded: bool = False


class Attempts:
    """Runs tasks in *session*; *clerk* writes. *process* is the id of the process in the workspace ledger."""

    def __init__(self, session: Session, clerk: TaskLog, process: str) -> None:
        self._session, self._clerk = session, clerk
        kernel: str = session.bindings.charter.document["kernel"]
        self._environment = {
            "kernel": kernel,
            "python": platform.python_version(),
            "platform": sys.platform,
            "pid": os.getpid(),
            "process": process,
        }

    def perform(self, task: Kept, ability: str, args: Json, span: str) -> Result[Ran]:
        """Make the call of *task*, whose run began under *span*, and record how that ended.

        Raises `DeedbookError` where that cannot be recorded; the session's ledger has the outcome then.
        """
        self._clerk.book.active.add(task.id)
        try:
            return self._performed(task, ability, args, span)
        finally:
            self._clerk.book.active.discard(task.id)

    def _performed(self, task: Kept, ability: str, args: Json, span: str) -> Result[Ran]:
        begun, door = time.perf_counter(), self._session.door
        ticket: Ticket | None = None
        result: Result[Json] = Err(fault("CANCELLED", f"{ability} was cancelled before it began"))
        try:
            opened = door.before(self._session.caller, ability, args, span)
            if isinstance(opened, Err):
                result = opened
            else:
                ticket = opened.value
                result = Err(fault("CANCELLED", f"{ability} was cancelled"))
                result = _performed(door, ticket)
        except BaseException:
            with suppress(DeedbookError):
                self._ended(task, ticket, result, span, time.perf_counter() - begun)
            raise
        self._ended(task, ticket, result, span, time.perf_counter() - begun)
        if isinstance(result, Err):
            error = result.error
            if ticket and _state(ticket) == "unknown":
                error = attrs.evolve(error, message=f"{error.message}; a person says which: {DECIDE.format(task.id)}")
            return Err(error, {**result.details, **({"signals": ticket.signals} if ticket else {})})
        return Ok(Ran(result=result.value, task=task.id, signals=ticket.signals if ticket else {}))

    def settle(self, task: Kept, found: Aftermath) -> None:
        """Record what the record, or the handler, says of a run that nobody has ended."""
        said = {"state": found.state, "call": found.call, "code": found.code, "message": found.message}
        ended = {name: value for name, value in {**said, "approval": found.approval}.items() if value is not None}
        shown = found.result if found.known else _NONE
        self._end(task, ended, self._session.cause, 0.0, found.source, shown=shown)

    def _ended(self, task: Kept, ticket: Ticket | None, result: Result[Json], span: str, seconds: float) -> None:
        ended = _ending(ticket, result)
        self._end(task, ended, span, seconds, "run", shown=ended.pop("result", _NONE))

    def _end(self, task: Kept, ended: Object, cause: str, seconds: float, source: str, *, shown: Json) -> None:
        said = {
            **ended,
            "run": task.runs,
            "source": source,
            "duration_ms": round(seconds * 1000),
            "environment": self._environment,
        }
        result = {} if shown is _NONE else {"result": shown}
        self._clerk.note("task.ended", task, said, cause, result=result, lax=True)


_NONE: Final[Any] = object()


def _performed(door: Door, ticket: Ticket) -> Result[Json]:
    try:
        return door.perform(ticket)
    except DeedbookError as problem:
        return Err(problem.error)


def _ending(ticket: Ticket | None, result: Result[Json]) -> dict[str, Any]:
    """Return how the task stands after a call: by what was recorded of it, and not by what its caller was told."""
    if isinstance(result, Ok):
        assert ticket
        return {"state": "succeeded", "call": ticket.idempotency_key, "result": result.value}
    said = _why(result.error)
    if ticket is None:
        return {**said, **_unbegun(result)}
    return {**said, "state": _state(ticket), "call": ticket.idempotency_key}


def _unbegun(refused: Err) -> dict[str, Any]:
    code = refused.error.code
    if code == "NEEDS_HUMAN" and "approval" in refused.details:
        return {"state": "waiting", "approval": refused.details["approval"]}
    return {"state": "ready" if code in _UNBEGUN else "denied"}


def _state(ticket: Ticket) -> str:
    """Say how a call ended that gave its caller nothing: what changes the world and was cut off may have done so."""
    if ticket.end == "result":
        return "succeeded"
    return "failed" if ticket.end == "failed" or (ticket.end and not ticket.bound.durable) else "unknown"


def _why(error: DomainError) -> dict[str, Any]:
    return {"code": error.code, "message": str(error)[:2000].encode("utf-8", "backslashreplace").decode()}
