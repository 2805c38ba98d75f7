"""Call a handler, synchronous or asynchronous, within its limit.

There is always an outcome, unless the handler is a flow whose run is suspended.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import attrs

from deedbook.contract import Approval, Failed, Json, Object
from deedbook.format.canonical import admit, decode
from deedbook.format.errors import DeedbookError, DomainError, Ok, describe, describe_crash, fault
from deedbook.policy.bound import DURABLE, BoundAbility, Caller
from deedbook.policy.gates import Clock

if TYPE_CHECKING:
    from asyncio import Timeout

    from deedbook.plugins.call_files import CallFiles
    from deedbook.policy.limits import FileRules

T = TypeVar("T")

_JSON: Final = frozenset({dict, list, str, int, float, bool, type(None)})
"""Types that cannot be awaited."""


@attrs.define(eq=False)
class Ticket:
    """An opened call: its intent is recorded under *span*, and an outcome must follow.

    *args* is the handler's private copy of the recorded arguments (*raw*: their bytes); *deadline* is on the door's
    clock, in seconds; *outcome* is the span of its outcome, and *end* how it ended (`Outcome`). *signals* are those of
    hooks. *asked* is the reason why a person must decide, if the agent asks the person. *settlements* are functions of
    features to call with the outcome. *limit* ends a coroutine at the *deadline*. *approval* is the answer of the
    person who approved the call, if one was asked.
    """

    bound: BoundAbility
    caller: Caller
    args: Any
    raw: bytes
    span: str
    session: str
    deadline: float
    cancelled: bool = False
    outcome: str | None = None
    end: str | None = None
    signals: Mapping[str, Any] = attrs.field(factory=dict)
    asked: str = ""
    settlements: "tuple[Callable[[Outcome | None], None], ...]" = ()
    limit: "Timeout | None" = None
    approval: Approval | None = None

    def extend(self, seconds: float) -> None:
        """Let the call, which is under way, end *seconds* later."""
        self.deadline += seconds
        if self.limit is not None and (when := self.limit.when()) is not None:
            self.limit.reschedule(when + seconds)

    def settle(self, outcome: "Outcome | None") -> None:
        """Tell the features, once, the recorded *outcome*, or ``None`` if the call did not begin."""
        settlements, self.settlements = self.settlements, ()
        settle(settlements, outcome)

    @property
    def idempotency_key(self) -> str:
        """A unique name of this call."""
        return f"{self.session}:{self.span}"


class Outcome(NamedTuple):
    """The outcome of a call: a *value*, or an error with the kind of *end*.

    *events* (type and payload) are recorded under it.
    """

    end: Literal["result", "failed", "cancelled", "timed_out", "unknown"]
    value: Json = None
    error: DomainError | None = None
    late: bool = False
    events: tuple[tuple[str, Object], ...] = ()


def settle(settlements: "Iterable[Callable[[Outcome | None], None]]", outcome: Outcome | None) -> None:
    """Call each of the *settlements* with *outcome*; one that cannot be recorded changes nothing about the call."""
    for each in settlements:
        with suppress(DeedbookError):
            each(outcome)


class Interrupted(Exception):  # noqa: N818 - it carries an outcome; its cause is the error
    """A person, or the surrounding task, cancelled the call; *cause* is raised again once the outcome is recorded."""

    def __init__(self, outcome: Outcome, cause: BaseException) -> None:
        super().__init__(describe(cause))
        self.outcome = outcome
        self.cause = cause


class RunSuspended(BaseException):
    """Unwinds a flow whose run is suspended; ``except Exception`` does not catch it.

    *error* says what the run waits for, or why it cannot go on; *approval* is the id of the request that a person must
    answer.
    """

    def __init__(self, error: DomainError, approval: str = "") -> None:
        super().__init__(error.message)
        self.error = error
        self.approval = approval


def perform(ticket: Ticket, invoke: Callable[[Ticket], Any], clock: Clock) -> Outcome:
    """Invoke the handler and wait for it; raises only `Interrupted`, and `RunSuspended` for a flow."""
    if (calls := _call_files(ticket)) is None:
        return _perform(ticket, invoke, clock)
    with calls.enter(_file_rules(ticket)):
        return _perform(ticket, invoke, clock)


def _perform(ticket: Ticket, invoke: Callable[[Ticket], Any], clock: Clock) -> Outcome:
    try:
        made: Any = invoke(ticket)
        if type(made) not in _JSON and isawaitable(made):
            from deedbook.format.loops import run_coroutine

            made = run_coroutine(_within(made, ticket, clock))
    except RunSuspended:
        raise
    except KeyboardInterrupt as stop:
        raise _interruption(ticket, stop) from None
    except BaseException as problem:  # noqa: BLE001 - a handler that exits was still called
        return _failure_outcome(ticket, problem)
    return Outcome("result", made, None, clock() > ticket.deadline)


async def aperform(ticket: Ticket, invoke: Callable[[Ticket], Any], clock: Clock) -> Outcome:
    """Act like `perform`; an asynchronous handler is awaited."""
    if (calls := _call_files(ticket)) is None:
        return await _aperform(ticket, invoke, clock)
    with calls.enter(_file_rules(ticket)):
        return await _aperform(ticket, invoke, clock)


async def _aperform(ticket: Ticket, invoke: Callable[[Ticket], Any], clock: Clock) -> Outcome:
    try:
        made: Any = invoke(ticket)
        if type(made) not in _JSON and isawaitable(made):
            made = await _within(made, ticket, clock)
    except RunSuspended:
        raise
    except (KeyboardInterrupt, GeneratorExit) as stop:
        raise _interruption(ticket, stop) from None
    except BaseException as problem:  # noqa: BLE001 - as above
        from deedbook.format.loops import is_cancelling

        if is_cancelling(problem):
            raise _interruption(ticket, problem) from None
        return _failure_outcome(ticket, problem)
    return Outcome("result", made, None, clock() > ticket.deadline)


def _call_files(ticket: Ticket) -> "CallFiles | None":
    """Return what the host of the handler must know of the call; nothing if it reaches no files, and has no limits."""
    bound = ticket.bound
    return None if bound.files == "none" and not ticket.caller.limits else bound.call_files


def _file_rules(ticket: Ticket) -> "FileRules | None":
    if not ticket.caller.limits:
        return None
    from deedbook.policy.limits import file_rules

    return file_rules(ticket.caller.limits, ticket.bound)


async def _within(made: Awaitable[T], ticket: Ticket, clock: Clock) -> T:
    from asyncio import timeout

    from deedbook.format.loops import within

    left = ticket.bound.timeout if ticket.bound.interruptible else float("inf")
    if left == float("inf"):
        return await within(made, timeout(None))
    ticket.deadline = clock() + left  # what the handler did before it returned the coroutine does not count
    ticket.limit = timeout(left)
    return await within(made, ticket.limit)


def _interruption(ticket: Ticket, cause: BaseException) -> Interrupted:
    ticket.cancelled = True
    return Interrupted(_cancellation(ticket), cause)


def _cancellation(ticket: Ticket) -> Outcome:
    return Outcome("cancelled", error=fault("CANCELLED", f"{ticket.bound.id} was cancelled"))


def _failure_outcome(ticket: Ticket, problem: BaseException) -> Outcome:
    """Return the outcome of a handler that raised."""
    name = ticket.bound.id
    if isinstance(problem, Failed):
        lost = getattr(problem, "lost", False) is True and ticket.bound.effects in DURABLE
        return Outcome("unknown" if lost else "failed", error=_own_failure(problem, ticket.bound.mask))
    from deedbook.format.loops import TimedOut, is_cancelled

    if is_cancelled(problem):
        return _cancellation(ticket)
    if isinstance(problem, TimedOut):
        limit = f"{ticket.bound.timeout:g} s"
        return Outcome("timed_out", error=fault("TOOL_TIMEOUT", f"{name} did not end within {limit}"))
    return Outcome("failed", error=fault("TOOL_ERROR", f"{name}: {describe_crash(problem, ticket.bound.mask)}"))


def _own_failure(problem: Failed, mask: Callable[[str], str]) -> DomainError:
    """Return a handler's own failure; a subclass may have forgotten to set the attributes of `Failed`."""
    code, retryable = getattr(problem, "code", None), getattr(problem, "retryable", False)
    message = describe(problem, mask).removeprefix(f"{type(problem).__name__}: ")
    wait: Any = getattr(problem, "retry_after", None)
    error = fault(code if type(code) is str and code else "TOOL_ERROR", message, retryable=retryable is True)
    return attrs.evolve(error, retry_after=wait) if type(wait) in (int, float) and 0 <= wait < float("inf") else error


def reconcile(bound: BoundAbility, args: Any, idempotency_key: str) -> Ok[Json] | None:
    """Return the handler's result of a call whose outcome was lost; ``None`` if it cannot tell.

    The result must match the ability's schema; an invalid result or an exception counts as ``None``.
    """
    ask = getattr(bound.handler, "reconcile", None)
    if not bound.reconciles or ask is None:
        return None
    try:
        found = ask(args, idempotency_key)
        value = None if found is None else decode(admit(found))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - any failure means that the handler cannot tell
        return None
    return Ok(value) if value is not None and bound.gives.valid(value) else None
