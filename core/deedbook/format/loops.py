"""Event loops: run a coroutine from synchronous code, and blocking code beside a loop.

A module of its own, imported when needed: importing `asyncio` takes as long as a fifth of the kernel.
"""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, Final, ParamSpec, TypeVar

from deedbook.format.waits import get_result, join

P = ParamSpec("P")
T = TypeVar("T")
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class TimedOut(Exception):  # noqa: N818 - an outcome of a call
    """The limit was reached; a `TimeoutError` may be the handler's own."""


async def within(made: Awaitable[T], limit: asyncio.Timeout) -> T:
    """Await *made* until its *limit* (`asyncio.timeout`); raises `TimedOut`."""
    try:
        async with limit:
            return await made
    except TimeoutError:
        if limit.expired():
            raise TimedOut from None
        raise


def is_cancelled(problem: BaseException) -> bool:
    """Return whether a task was cancelled."""
    return isinstance(problem, asyncio.CancelledError)


def is_cancelling(problem: BaseException) -> bool:
    """Return whether the surrounding task is being cancelled; otherwise a handler lost a task of its own."""
    if not is_cancelled(problem):
        return False
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def run_coroutine(made: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from synchronous code, also inside a running event loop of this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(made)
    return _in_thread(made)


def _run(made: Coroutine[Any, Any, T]) -> T:
    """Run *made* on a loop of its own; after an interrupt before it began, Python does not warn that it never did."""
    runner = asyncio.Runner()
    try:
        with _hold_signals():
            runner.get_loop()
        return runner.run(made)
    finally:
        runner.close()
        made.close()


@contextmanager
def _hold_signals() -> Iterator[None]:
    """Let signals that end the work take effect afterwards: a loop that is half built cannot be closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    own = [number for number, handler in handlers.items() if callable(handler)]
    try:
        for number in own:
            signal.signal(number, lambda number, _frame: caught.append(number))
        yield
    finally:
        for number in own:
            signal.signal(number, handlers[number])
        if caught:
            signal.raise_signal(caught[0])


def _in_thread(made: Coroutine[Any, Any, T]) -> T:
    """Run *made* on a loop of another thread and wait; an interrupt cancels it and waits for its end."""
    done: Future[T] = Future()
    task: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()

    async def main() -> T:
        task.set_result((asyncio.get_running_loop(), asyncio.ensure_future(made)))
        return await task.result()[1]

    def run() -> None:
        try:
            done.set_result(asyncio.run(main()))
        except BaseException as problem:  # noqa: BLE001 - raised again in the caller's thread
            done.set_exception(problem)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="deedbook-handler", daemon=True)
    try:
        thread.start()
        return get_result(done)
    except KeyboardInterrupt:
        if thread.ident is not None and not done.done():
            loop, running = get_result(task)
            with suppress(RuntimeError):  # already closed: the coroutine has ended
                loop.call_soon_threadsafe(running.cancel)
            join(thread)
        raise


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking code beside the event loop; a cancellation waits for its end, so that no work stays half done."""
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
        task.exception()  # otherwise Python warns about an exception that was not retrieved
    raise stop
