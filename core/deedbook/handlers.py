"""Calling a handler: plain or asynchronous, within its limit; whatever it does, there is an outcome."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any, Literal, ParamSpec, TypeVar

import attrs

from .bindings import Bound, Caller
from .contracts import Failed, Json
from .errors import DomainError, fault
from .gates import Clock

P = ParamSpec("P")
T = TypeVar("T")


@attrs.define(eq=False)
class Ticket:
    """An opened call: its intent is recorded under *span*, and an outcome must follow.

    *args* is the handler's private copy of the recorded arguments (*raw*: their bytes); *deadline* is on the door's
    clock, in seconds; *outcome* is the span of what closed it.
    """

    bound: Bound
    caller: Caller
    args: Any
    raw: bytes
    span: str
    session: str
    deadline: float
    cancelled: bool = False
    outcome: str | None = None

    @property
    def idempotency_key(self) -> str:
        """A name for this one call that no other call has."""
        return f"{self.session}:{self.span}"


@attrs.frozen
class Outcome:
    """What became of a call: a *value*, or an error with the kind of end it met."""

    end: Literal["result", "failed", "cancelled", "timed_out", "unknown"]
    value: Json = None
    error: DomainError | None = None
    late: bool = False


class Interrupted(Exception):
    """A person, or the task around it, cancelled the call; *cause* goes on once the outcome is recorded."""

    def __init__(self, outcome: Outcome, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.outcome = outcome
        self.cause = cause


def perform(ticket: Ticket, make_ctx: Callable[[Ticket], Any], clock: Clock) -> Outcome:
    """Invoke the handler and wait for it; raises only `Interrupted`."""
    try:
        made = ticket.bound.handler(ticket.args, make_ctx(ticket))
        if isawaitable(made):
            made = run_coroutine(_within(made, ticket, clock))
    except BaseException as problem:  # noqa: BLE001 - a handler that exits has still been tried
        return _ended(ticket, problem)
    return Outcome("result", made, late=clock() > ticket.deadline)


async def aperform(ticket: Ticket, make_ctx: Callable[[Ticket], Any], clock: Clock) -> Outcome:
    """Do what `perform` does; an asynchronous handler is awaited."""
    try:
        made = ticket.bound.handler(ticket.args, make_ctx(ticket))
        if isawaitable(made):
            made = await _within(made, ticket, clock)
    except BaseException as problem:  # noqa: BLE001 - as above
        return _ended(ticket, problem)
    return Outcome("result", made, late=clock() > ticket.deadline)


async def _within(made: Awaitable[T], ticket: Ticket, clock: Clock) -> T:
    left = ticket.deadline - clock()
    async with asyncio.timeout(left if ticket.bound.interruptible and left != float("inf") else None):
        return await made


def _ended(ticket: Ticket, problem: BaseException) -> Outcome:
    """Return the outcome of a handler that raised."""
    name = ticket.bound.id
    if isinstance(problem, Failed):
        error = fault(str(problem.code), str(problem), retryable=bool(problem.retryable))
        return Outcome("failed", error=error)
    if isinstance(problem, KeyboardInterrupt | asyncio.CancelledError):
        ticket.cancelled = True
        outcome = Outcome("cancelled", error=fault("CANCELLED", f"{name} was cancelled"))
        raise Interrupted(outcome, problem)
    if isinstance(problem, TimeoutError) and ticket.bound.interruptible:
        limit = f"{ticket.bound.timeout:g} s"
        return Outcome("timed_out", error=fault("TOOL_TIMEOUT", f"{name} did not end within {limit}"))
    return Outcome("failed", error=fault("TOOL_ERROR", f"{name}: {type(problem).__name__}: {problem}"))


def run_coroutine(made: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from plain code, also where this thread's event loop is busy calling us."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(made)
    return _in_thread(made)


def _in_thread(made: Coroutine[Any, Any, T]) -> T:
    box: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            box.append(asyncio.run(made))
        except BaseException as problem:  # noqa: BLE001 - carried over to the caller's thread
            failure.append(problem)

    thread = threading.Thread(target=run, name="deedbook-handler", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return box[0]


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking code beside the event loop; a cancellation waits for its end, so that nothing is half done."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
