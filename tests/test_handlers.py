"""Whatever a handler does, there is an outcome; only a person, or the task around a call, interrupts it."""

import asyncio
import contextvars
import gc
import os
import re
import signal
import threading
import time
from asyncio.selector_events import BaseSelectorEventLoop
from typing import Any

import attrs
import pytest
from parts import still, ticket

from deedbook.call.handlers import Interrupted, Outcome, Ticket, aperform, perform
from deedbook.contract import Failed, Json
from deedbook.format.errors import DomainError, describe_crash, fault
from deedbook.format.loops import off_loop, run_coroutine

FOREVER = 3600


def invoke(opened: Ticket) -> Any:
    return opened.bound.handler(opened.args, None)


def plainly(opened: Ticket, clock: Any = still) -> Outcome:
    return perform(opened, invoke, clock)


def awaiting(opened: Ticket, clock: Any = still) -> Outcome:
    return asyncio.run(aperform(opened, invoke, clock))


def inside_a_loop(opened: Ticket, clock: Any = still) -> Outcome:
    async def main() -> Outcome:
        return perform(opened, invoke, clock)

    return asyncio.run(main())


WAYS = pytest.mark.parametrize("way", [plainly, awaiting, inside_a_loop])


def raising(problem: BaseException) -> Any:
    def handler(_args: Any, _ctx: Any) -> Json:
        raise problem

    return handler


def araising(problem: BaseException) -> Any:
    async def handler(_args: Any, _ctx: Any) -> Json:
        await asyncio.sleep(0)
        raise problem

    return handler


KINDS = pytest.mark.parametrize("making", [raising, araising])


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Forgetful(Failed):
    """A failure that forgets what `Failed` sets."""

    def __init__(self) -> None:
        pass


# --- results ----------------------------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("value", [None, True, 0, 1.5, "text", [1], {"a": {}}], ids=repr)
def test_outcome_of_a_handler_is_the_value_that_it_returned(way: Any, value: Json) -> None:
    async def later(_args: Any, _ctx: Any) -> Json:
        return value

    for handler in (lambda _args, _ctx: value, later):
        made = way(ticket(handler))
        assert made == Outcome("result", value)
        assert made.value is value


@WAYS
def test_handler_gets_the_tickets_arguments(way: Any) -> None:
    opened = ticket(lambda args, ctx: [args, ctx], {"a": 1})
    made = way(opened)
    assert made.value == [{"a": 1}, None]
    assert made.value[0] is opened.args


@WAYS
def test_handler_may_return_any_awaitable(way: Any) -> None:
    class Later:
        def __await__(self) -> Any:
            return asyncio.sleep(0, result="done").__await__()

    assert way(ticket(lambda *_: Later())).value == "done"


def test_asynchronous_handler_is_awaited_on_the_loop_of_its_caller() -> None:
    async def main() -> bool:
        loop = asyncio.get_running_loop()

        async def handler(_args: Any, _ctx: Any) -> Any:
            return asyncio.get_running_loop() is loop

        return (await aperform(ticket(handler), invoke, still)).value  # type: ignore[return-value]

    assert asyncio.run(main())


def test_asynchronous_handler_sees_the_context_variables_of_a_plain_caller_inside_a_loop() -> None:
    variable = contextvars.ContextVar("variable", default="")

    async def handler(_args: Any, _ctx: Any) -> Json:
        return variable.get()

    variable.set("traced")
    assert inside_a_loop(ticket(handler)).value == "traced"


def test_idempotency_key_names_one_call() -> None:
    assert ticket(None).idempotency_key == "s1:0000000000000001"


# --- failures ---------------------------------------------------------------------------------------------------------


@WAYS
@KINDS
@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (Failed("NO_SUCH_FILE", "a.txt"), DomainError("run", "NO_SUCH_FILE", "a.txt")),
        (Failed("PROVIDER_ERROR", "HTTP 503", retryable=True), DomainError("run", "PROVIDER_ERROR", "HTTP 503", True)),
        (Failed("GATE_DENIED", "of a nested call"), DomainError("gate", "GATE_DENIED", "of a nested call")),
        (Failed(404, "not text"), fault("TOOL_ERROR", "not text")),  # type: ignore[arg-type]
        (Failed("", "empty"), fault("TOOL_ERROR", "empty")),
        (Failed(None, "none"), fault("TOOL_ERROR", "none")),  # type: ignore[arg-type]
        (Failed("X", "so so", retryable="yes"), DomainError("run", "X", "so so")),  # type: ignore[arg-type]
        (Failed("X", "\ud800"), DomainError("run", "X", "\\ud800")),
        (Failed("X", {"a": 1}), DomainError("run", "X", "{'a': 1}")),  # type: ignore[arg-type]
        (Forgetful(), fault("TOOL_ERROR", "Forgetful")),
    ],
    ids=lambda value: repr(value) if isinstance(value, Failed) else "",
)
def test_outcome_of_a_handlers_own_failure_has_its_code(way: Any, making: Any, problem: Failed, error: Any) -> None:
    assert way(ticket(making(problem))) == Outcome("failed", error=error)


def without_place(made: Outcome) -> Outcome:
    assert made.error is not None
    message, found = re.subn(r" \(\S+\.py:[0-9]+\)$", "", made.error.message)
    assert found == 1
    return made._replace(error=attrs.evolve(made.error, message=message))


@WAYS
@KINDS
@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (ValueError("bad"), "echo: ValueError: bad"),
        (KeyError("k"), "echo: KeyError: 'k'"),
        (RuntimeError(), "echo: RuntimeError"),
        (SystemExit(0), "echo: SystemExit: 0"),
        (UnprintableError(), "echo: UnprintableError"),
        (ValueError("\udcff" * 9), "echo: ValueError: " + "\\udcff" * 9),
        (BaseExceptionGroup("two", [SystemExit(1)]), "echo: BaseExceptionGroup: two (1 sub-exception)"),
        (TimeoutError("of a socket"), "echo: TimeoutError: of a socket"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_outcome_of_any_other_exception_is_a_tool_error(
    way: Any, making: Any, problem: BaseException, message: str
) -> None:
    assert without_place(way(ticket(making(problem)))) == Outcome("failed", error=fault("TOOL_ERROR", message))


@WAYS
def test_outcome_of_a_plain_handler_that_says_generator_exit_is_a_tool_error(way: Any) -> None:
    if way is not awaiting:
        made = way(ticket(raising(GeneratorExit())))
        assert without_place(made) == Outcome("failed", error=fault("TOOL_ERROR", "echo: GeneratorExit"))


@WAYS
def test_outcome_exists_where_the_handler_cannot_be_invoked(way: Any) -> None:
    def broken(_: Ticket) -> None:
        raise RuntimeError("no context")

    opened = ticket(lambda *_: 1)
    made = asyncio.run(aperform(opened, broken, still)) if way is awaiting else perform(opened, broken, still)
    assert without_place(made) == Outcome("failed", error=fault("TOOL_ERROR", "echo: RuntimeError: no context"))


def module(name: str, source: str, file: str = "somewhere.py", **names: Any) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": name, **names}
    exec(compile(source, f"/a/machine/{file}", "exec"), space)
    return space


@pytest.mark.parametrize(
    ("name", "file", "place"),
    [("words", "words.py", "words.py:2"), ("words.count.all", "all.py", "words/count/all.py:2"),
     ("words.count", "__init__.py", "words/count/__init__.py:2"), ("deedbook_words", "x.py", "deedbook_words.py:2")],
)  # fmt: skip
def test_error_names_the_innermost_line_of_the_plugins_own_code(name: str, file: str, place: str) -> None:
    library = module("library.inner", "def divide():\n\n\n    return 1 / 0\n")
    plugin = module(name, "def call(divide):\n    return divide()\n", file)
    outer = module("importlib", "def load(call, divide):\n\n    return call(divide)\n")
    with pytest.raises(ZeroDivisionError) as raised:
        outer["load"](plugin["call"], library["divide"])
    problem = raised.value.with_traceback(raised.tb.tb_next)  # without the frame of this test
    assert describe_crash(problem) == f"ZeroDivisionError: division by zero ({place})"


def test_error_keeps_its_place_whole_and_its_secrets_masked_where_the_message_is_cut() -> None:
    plugin = module("words", "def call():\n    raise ValueError('x' * 470 + 'secret' * 100)\n")
    with pytest.raises(ValueError, match="secret") as raised:
        plugin["call"]()
    said = describe_crash(raised.value.with_traceback(raised.tb.tb_next), lambda text: text.replace("secret", "***"))
    assert said.endswith("* (words.py:2)")
    assert ("secret" in said, len(said)) == (False, 500)


# --- time -------------------------------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize(("now", "late"), [(5.0, False), (5.001, True)])
def test_result_after_the_deadline_is_marked_late(way: Any, now: float, late: bool) -> None:
    assert way(ticket(lambda *_: "done", deadline=5.0), lambda: now) == Outcome("result", "done", late=late)


@WAYS
def test_asynchronous_handler_that_is_not_interruptible_is_only_marked_late(way: Any) -> None:
    async def slow(_args: Any, _ctx: Any) -> Json:
        await asyncio.sleep(0.01)
        return "done"

    opened = ticket(slow, deadline=time.perf_counter() - 1)
    assert way(opened, time.perf_counter) == Outcome("result", "done", late=True)


@WAYS
def test_interruptible_handler_ends_at_its_limit_and_may_clean_up(way: Any) -> None:
    cleaned: list[str] = []

    async def slow(_args: Any, _ctx: Any) -> Json:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            cleaned.append("up")
        return "never"

    opened = ticket(slow, deadline=time.perf_counter() + 0.02, interruptible=True, timeout=0.02)
    made = way(opened, time.perf_counter)
    assert made == Outcome("timed_out", error=fault("TOOL_TIMEOUT", "echo did not end within 0.02 s"))
    assert cleaned == ["up"]


@WAYS
def test_limit_of_a_coroutine_begins_when_the_handler_returns_it(way):
    now = [100.0]

    def importing(_args: Any, _ctx: Any) -> Any:
        now[0] += 50.0

        async def work() -> Json:
            await asyncio.sleep(0)
            return opened.deadline - now[0]

        return work()

    opened = ticket(importing, deadline=103.0, interruptible=True, timeout=3.0)
    assert way(opened, lambda: now[0]) == Outcome("result", 3.0)


@WAYS
def test_limit_that_is_extended_ends_the_call_later(way: Any) -> None:
    ends: list[float | None] = []

    async def handler(args: Any, ctx: Any) -> Json:
        assert opened.limit is not None
        ends.append(opened.limit.when())
        opened.extend(1000.0)
        ends.append(opened.limit.when())
        return opened.deadline

    opened = ticket(handler, deadline=0.0, interruptible=True, timeout=float(FOREVER))
    assert way(opened, lambda: 100.0) == Outcome("result", 100.0 + FOREVER + 1000)
    first, second = ends
    assert first is not None
    assert second == first + 1000


def test_call_without_a_limit_of_its_own_is_extended_by_its_deadline() -> None:
    opened = ticket(lambda args, ctx: None, deadline=5.0)
    opened.extend(2.0)
    assert opened.deadline == 7.0


@WAYS
def test_interruptible_handlers_own_time_out_is_not_taken_for_its_limit(way: Any) -> None:
    async def handler(_args: Any, _ctx: Any) -> Json:
        async with asyncio.timeout(0):
            await asyncio.sleep(FOREVER)
        return None

    opened = ticket(handler, deadline=time.perf_counter() + FOREVER, interruptible=True)
    made = way(opened, time.perf_counter)
    assert without_place(made) == Outcome("failed", error=fault("TOOL_ERROR", "echo: TimeoutError"))


@WAYS
def test_interruptible_handler_that_will_not_stop_gives_a_late_result(way: Any) -> None:
    async def stubborn(_args: Any, _ctx: Any) -> Json:
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError:
            return "done anyway"
        return None

    opened = ticket(stubborn, deadline=time.perf_counter(), interruptible=True, timeout=0.0)
    assert way(opened, time.perf_counter) == Outcome("result", "done anyway", late=True)


@WAYS
def test_interruptible_handler_without_a_limit_is_not_stopped(way: Any) -> None:
    async def handler(_args: Any, _ctx: Any) -> Json:
        return await asyncio.sleep(0, result="done")

    assert way(ticket(handler, interruptible=True), time.perf_counter) == Outcome("result", "done")


# --- interruption -----------------------------------------------------------------------------------------------------


@WAYS
@KINDS
def test_interrupt_of_a_person_is_carried_with_the_outcome(way: Any, making: Any) -> None:
    cause = KeyboardInterrupt()
    opened = ticket(making(cause))
    with pytest.raises(Interrupted) as stopped:
        way(opened)
    assert (stopped.value.cause, opened.cancelled) == (cause, True)
    assert stopped.value.outcome == Outcome("cancelled", error=fault("CANCELLED", "echo was cancelled"))


def test_cancellation_of_the_task_around_a_call_is_carried_with_the_outcome() -> None:
    started = asyncio.Event()

    async def slow(_args: Any, _ctx: Any) -> Json:
        started.set()
        return await asyncio.sleep(FOREVER)

    async def main() -> Any:
        opened = ticket(slow)
        task = asyncio.ensure_future(aperform(opened, invoke, still))
        await started.wait()
        task.cancel("stop")
        with pytest.raises(Interrupted) as stopped:
            await task
        return opened, stopped.value

    opened, stop = asyncio.run(main())
    assert opened.cancelled
    assert isinstance(stop.cause, asyncio.CancelledError)
    assert stop.outcome == Outcome("cancelled", error=fault("CANCELLED", "echo was cancelled"))


@WAYS
def test_handler_that_loses_a_task_of_its_own_is_cancelled_and_interrupts_nobody(way: Any) -> None:
    async def handler(_args: Any, _ctx: Any) -> Json:
        own = asyncio.ensure_future(asyncio.sleep(FOREVER))
        own.cancel()
        return await own

    opened = ticket(handler)
    assert way(opened) == Outcome("cancelled", error=fault("CANCELLED", "echo was cancelled"))
    assert not opened.cancelled


@WAYS
def test_plain_handler_that_raises_a_cancellation_interrupts_nobody(way: Any) -> None:
    assert way(ticket(raising(asyncio.CancelledError()))).end == "cancelled"


def test_closing_the_coroutine_of_a_call_is_carried_once_the_outcome_is_known() -> None:
    class Pause:
        def __await__(self) -> Any:
            yield

    async def slow(_args: Any, _ctx: Any) -> Json:
        await Pause()
        return None

    async def main() -> None:
        stops: list[Interrupted] = []

        async def watched() -> None:
            try:
                await aperform(ticket(slow), invoke, still)
            except Interrupted as stop:
                stops.append(stop)
                raise stop.cause from None

        running = watched()
        running.send(None)
        running.close()
        assert [type(stop.cause) for stop in stops] == [GeneratorExit]

    asyncio.run(main())


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
def test_interrupt_while_a_plain_caller_inside_a_loop_waits_cancels_the_handler_and_waits_for_its_end() -> None:
    ends: list[str] = []

    async def slow(_args: Any, _ctx: Any) -> Json:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(FOREVER)
        finally:
            ends.append("cleaned up")
        return None

    opened = ticket(slow)

    async def main() -> None:
        with pytest.raises(Interrupted) as stopped:
            perform(opened, invoke, still)
        assert isinstance(stopped.value.cause, KeyboardInterrupt)

    loop = asyncio.new_event_loop()  # unlike `asyncio.run` it leaves the signal alone
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert (ends, opened.cancelled) == (["cleaned up"], True)


# --- coroutines from plain code, and plain code from coroutines -------------------------------------------------------


def test_run_coroutine_gives_result_and_exception_inside_a_loop_and_outside() -> None:
    async def value() -> str:
        return "done"

    async def failure() -> str:
        raise LookupError("gone")

    async def main() -> None:
        assert run_coroutine(value()) == "done"
        with pytest.raises(LookupError, match="gone"):
            run_coroutine(failure())

    asyncio.run(main())
    assert run_coroutine(value()) == "done"


def test_off_loop_gives_result_and_exception_of_blocking_code() -> None:
    def fail() -> None:
        raise LookupError("gone")

    async def main() -> None:
        assert await off_loop(divmod, 7, 2) == (3, 1)
        with pytest.raises(LookupError, match="gone"):
            await off_loop(fail)

    asyncio.run(main())


@pytest.mark.parametrize("fails", [False, True])
def test_off_loop_is_cancelled_only_when_the_blocking_code_has_ended(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        assert go.wait(FOREVER)
        ended.set()
        if fails:
            raise LookupError("nobody looks")

    async def cancel_twice(task: asyncio.Task[None]) -> None:
        await asyncio.to_thread(begun.wait)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.01)
            assert not task.done()
        go.set()

    async def main() -> None:
        task = asyncio.ensure_future(off_loop(block))
        await cancel_twice(task)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended.is_set()
    gc.collect()  # an exception that nobody retrieved would be logged here
    assert caplog.text == ""


@pytest.mark.parametrize("part", ["_make_self_pipe", "_add_reader"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_interrupt_while_the_loop_is_built_waits_for_the_end_of_that(monkeypatch, part, number) -> None:
    """A loop that is half there cannot be closed, and Python would print why."""
    begun, original = [], getattr(BaseSelectorEventLoop, part)

    def interrupted(loop, *args):
        signal.raise_signal(number)
        return original(loop, *args)

    async def work() -> None:
        begun.append(1)

    def stop(_number, _frame):
        raise KeyboardInterrupt

    monkeypatch.setattr(BaseSelectorEventLoop, part, interrupted)
    before = signal.signal(number, stop)
    files = os.listdir("/dev/fd")
    try:
        with pytest.raises(KeyboardInterrupt):
            run_coroutine(work())
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)
    assert begun == []
    assert len(os.listdir("/dev/fd")) == len(files)
    gc.collect()  # what was left half built would be told of now
