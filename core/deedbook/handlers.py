"""Calling a handler: plain or asynchronous, within its limit; whatever it does, there is an outcome."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeVar

import attrs

from .bindings import Bound, Caller
from .contracts import Failed, Json
from .errors import DomainError, describe, fault
from .gates import Clock

P = ParamSpec("P")
T = TypeVar("T")

_JSON: Final = frozenset({dict, list, str, int, float, bool, type(None)})
"""What needs no look whether it can be awaited."""


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


class Outcome(NamedTuple):
    """What became of a call: a *value*, or an error with the kind of end it met."""

    end: Literal["result", "failed", "cancelled", "timed_out", "unknown"]
    value: Json = None
    error: DomainError | None = None
    late: bool = False


class Interrupted(Exception):  # noqa: N818 - it carries an outcome; the error is its cause
    """A person, or the task around it, cancelled the call; *cause* goes on once the outcome is recorded."""

    def __init__(self, outcome: Outcome, cause: BaseException) -> None:
        super().__init__(describe(cause))
        self.outcome = outcome
        self.cause = cause


class _TimedOut(Exception):  # noqa: N818 - never leaves this module
    """The limit was reached; a `TimeoutError` may be the handler's own."""


def perform(ticket: Ticket, make_ctx: Callable[[Ticket], Any], clock: Clock) -> Outcome:
    """Invoke the handler and wait for it; raises only `Interrupted`."""
    try:
        made: Any = ticket.bound.handler(ticket.args, make_ctx(ticket))
        if type(made) not in _JSON and isawaitable(made):
            made = run_coroutine(_within(made, ticket, clock))
    except KeyboardInterrupt as stop:
        raise _interrupted(ticket, stop) from None
    except BaseException as problem:  # noqa: BLE001 - a handler that exits has still been tried
        return _ended(ticket, problem)
    return Outcome("result", made, late=clock() > ticket.deadline)


async def aperform(ticket: Ticket, make_ctx: Callable[[Ticket], Any], clock: Clock) -> Outcome:
    """Do what `perform` does; an asynchronous handler is awaited."""
    try:
        made: Any = ticket.bound.handler(ticket.args, make_ctx(ticket))
        if type(made) not in _JSON and isawaitable(made):
            made = await _within(made, ticket, clock)
    except (KeyboardInterrupt, GeneratorExit) as stop:
        raise _interrupted(ticket, stop) from None
    except asyncio.CancelledError as stop:
        if _is_being_cancelled():
            raise _interrupted(ticket, stop) from None
        return _ended(ticket, stop)
    except BaseException as problem:  # noqa: BLE001 - as above
        return _ended(ticket, problem)
    return Outcome("result", made, late=clock() > ticket.deadline)


async def _within(made: Awaitable[T], ticket: Ticket, clock: Clock) -> T:
    left = ticket.deadline - clock()
    limit = asyncio.timeout(left if ticket.bound.interruptible and left != float("inf") else None)
    try:
        async with limit:
            return await made
    except TimeoutError:
        if limit.expired():
            raise _TimedOut from None
        raise


def _is_being_cancelled() -> bool:
    """Say whether somebody wants the task around the call to end; else a handler lost a task of its own."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _interrupted(ticket: Ticket, cause: BaseException) -> Interrupted:
    ticket.cancelled = True
    return Interrupted(_cancelled(ticket), cause)


def _cancelled(ticket: Ticket) -> Outcome:
    return Outcome("cancelled", error=fault("CANCELLED", f"{ticket.bound.id} was cancelled"))


def _ended(ticket: Ticket, problem: BaseException) -> Outcome:
    """Return the outcome of a handler that raised."""
    name = ticket.bound.id
    if isinstance(problem, Failed):
        return Outcome("failed", error=_own_failure(problem))
    if isinstance(problem, asyncio.CancelledError):
        return _cancelled(ticket)
    if isinstance(problem, _TimedOut):
        limit = f"{ticket.bound.timeout:g} s"
        return Outcome("timed_out", error=fault("TOOL_TIMEOUT", f"{name} did not end within {limit}"))
    return Outcome("failed", error=fault("TOOL_ERROR", f"{name}: {describe(problem)}"))


def _own_failure(problem: Failed) -> DomainError:
    """Return a handler's own failure; a subclass may have forgotten to set what `Failed` sets."""
    code, retryable = getattr(problem, "code", None), getattr(problem, "retryable", False)
    message = describe(problem).removeprefix(f"{type(problem).__name__}: ")
    return fault(code if type(code) is str and code else "TOOL_ERROR", message, retryable=retryable is True)


def run_coroutine(made: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from plain code, also where this thread's event loop is busy calling us."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(made)
    return _in_thread(made)


def _in_thread(made: Coroutine[Any, Any, T]) -> T:
    """Run *made* on a loop of another thread and wait; an interrupt cancels it, and then waits for its end."""
    done: Future[T] = Future()
    task: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()

    async def main() -> T:
        task.set_result((asyncio.get_running_loop(), asyncio.ensure_future(made)))
        return await task.result()[1]

    def run() -> None:
        try:
            done.set_result(asyncio.run(main()))
        except BaseException as problem:  # noqa: BLE001 - carried over to the caller's thread
            done.set_exception(problem)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="deedbook-handler", daemon=True)
    try:
        thread.start()
        return done.result()
    except KeyboardInterrupt:
        if thread.ident is not None and not done.done():
            loop, running = task.result()
            with suppress(RuntimeError):  # closed by now: it has ended by itself
                loop.call_soon_threadsafe(running.cancel)
            done.exception()
        raise


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking code beside the event loop; a cancellation waits for its end, so that nothing is half done."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    stop: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as again:
            stop = stop or again
    if stop is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # else Python warns that nobody looked
    raise stop
