"""One run of a task: an ordinary call through the door, and the record of its end."""

import os
import platform
import sys
import time
from contextlib import suppress
from typing import Any, Final

import attrs

from deedbook.call.door import Door
from deedbook.call.handlers import Ticket
from deedbook.contract import Json, Object
from deedbook.format.errors import DeedbookError, DomainError, Err, Ok, Result, fault
from deedbook.sessions.session import Session

from .book import TaskRecord
from .run_outcome import RunOutcome
from .run_results import conclude
from .task_log import TaskLog

_RETRYABLE: Final = frozenset({"LEDGER_BROKEN", "LEDGER_LOCKED", "SESSION_ENDED", "CANCELLED"})
"""Refusals before a call began after which the same call may be tried again."""
DECIDE: Final = "deedbook tasks decide {} --happened, or --did-not"
"""The command with which a person decides the outcome of a task whose outcome was lost; takes the task's id."""


@attrs.frozen(kw_only=True)
class RunResult:
    """The result of a run, and the signals of hooks before the call (``ability_guard``).

    *task* is the task's id (``None``: a direct run without a key, which cannot be named again). *recorded*: it is the
    result of an earlier run, and nothing was done now.
    """

    result: Json
    task: str | None = None
    signals: Object = attrs.field(factory=dict)
    recorded: bool = False


class TaskRuns:
    """Runs tasks in *session* and records them in *log*. *process* is the process's id in the workspace ledger."""

    def __init__(self, session: Session, log: TaskLog, process: str) -> None:
        self._session, self._log = session, log
        kernel: str = session.bindings.charter.document["kernel"]
        self._environment = {
            "kernel": kernel,
            "python": platform.python_version(),
            "platform": sys.platform,
            "pid": os.getpid(),
            "process": process,
        }

    def perform(self, task: TaskRecord, ability: str, args: Json, span: str) -> Result[RunResult]:
        """Make the call of *task*, whose run began under *span*, and record its end.

        Raises `DeedbookError` if the end cannot be recorded; the session's ledger then has the outcome.
        """
        self._log.book.active.add(task.id)
        try:
            return self._perform(task, ability, args, span)
        finally:
            self._log.book.active.discard(task.id)

    def _perform(self, task: TaskRecord, ability: str, args: Json, span: str) -> Result[RunResult]:
        started, door = time.perf_counter(), self._session.door
        ticket: Ticket | None = None
        given: Json = _NONE
        result: Result[Json] = Err(fault("CANCELLED", f"{ability} was cancelled before it began"))
        try:
            before = door.before(self._session.caller, ability, args, span)
            if isinstance(before, Err):
                result = before
            else:
                ticket = before.value
                result = Err(fault("CANCELLED", f"{ability} was cancelled"))
                result = _perform_call(door, ticket)
                if isinstance(result, Ok):
                    given = result.value
                result = conclude(self._session, ticket.span, result)
        except BaseException:
            with suppress(DeedbookError):
                self._record_end(task, ticket, result, given, span, time.perf_counter() - started)
            raise
        self._record_end(task, ticket, result, given, span, time.perf_counter() - started)
        if isinstance(result, Err):
            error = result.error
            if ticket and _get_state(ticket) == "unknown":
                error = attrs.evolve(error, message=f"{error.message}; a person says which: {DECIDE.format(task.id)}")
            return Err(error, {**result.details, **({"signals": ticket.signals} if ticket else {})})
        return Ok(RunResult(result=result.value, task=task.id, signals=ticket.signals if ticket else {}))

    def record_outcome(self, task: TaskRecord, outcome: RunOutcome) -> None:
        """Record the outcome of a run that has no recorded end."""
        payload = {"state": outcome.state, "call": outcome.call, "code": outcome.code, "message": outcome.message}
        ended = {name: value for name, value in {**payload, "approval": outcome.approval}.items() if value is not None}
        result_value = outcome.result if outcome.known else _NONE
        self._write_end(task, ended, self._session.cause, 0.0, outcome.source, result_value=result_value)

    def _record_end(
        self, task: TaskRecord, ticket: Ticket | None, result: Result[Json], given: Json, span: str, seconds: float
    ) -> None:
        ended = _describe_end(ticket, result)
        if isinstance(result, Err) and given is not _NONE:
            ended["state"] = "failed"  # the call gave a result: the context of a run that did not complete
        self._write_end(task, ended, span, seconds, "run", result_value=given)

    def _write_end(
        self, task: TaskRecord, ended: Object, cause: str, seconds: float, source: str, *, result_value: Json
    ) -> None:
        payload = {
            **ended,
            "run": task.runs,
            "source": source,
            "duration_ms": round(seconds * 1000),
            "environment": self._environment,
        }
        result = {} if result_value is _NONE else {"result": result_value}
        self._log.note("task.ended", task, payload, cause, result=result, lax=True)


_NONE: Final[Any] = object()


def _perform_call(door: Door, ticket: Ticket) -> Result[Json]:
    try:
        return door.perform(ticket)
    except DeedbookError as problem:
        return Err(problem.error)


def _describe_end(ticket: Ticket | None, result: Result[Json]) -> dict[str, Any]:
    """Return the state of a task after a call: from what was recorded, not from what its caller got."""
    if isinstance(result, Ok):
        assert ticket
        return {"state": "succeeded", "call": ticket.idempotency_key}
    payload = _describe_error(result.error)
    if ticket is None:
        return {**payload, **_describe_refusal(result)}
    return {**payload, "state": _get_state(ticket), "call": ticket.idempotency_key}


def _describe_refusal(refused: Err) -> dict[str, Any]:
    code = refused.error.code
    if code == "NEEDS_HUMAN" and "approval" in refused.details:
        return {"state": "waiting", "approval": refused.details["approval"]}
    return {"state": "ready" if code in _RETRYABLE else "denied"}


def _get_state(ticket: Ticket) -> str:
    """Return the state after a call without a result: a cut-off call that may have changed the world is unknown."""
    if ticket.end == "result":
        return "succeeded"
    return "failed" if ticket.end == "failed" or (ticket.end and not ticket.bound.durable) else "unknown"


def _describe_error(error: DomainError) -> dict[str, Any]:
    return {"code": error.code, "message": str(error)[:2000].encode("utf-8", "backslashreplace").decode()}
