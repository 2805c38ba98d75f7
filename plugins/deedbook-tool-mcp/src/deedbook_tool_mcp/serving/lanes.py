"""Run calls beside the loop that serves: each on a thread with its own loop, since a handler may block."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import anyio

T = TypeVar("T")

GRACE: Final = 2.0
"""How many seconds a cancelled call has to end."""
MAX_CALLS: Final = 64
"""How many calls run at once; more wait."""

_Loop = asyncio.AbstractEventLoop


class CallCancelledError(Exception):
    """The coroutine was cancelled, and its caller was not."""


class WorkerLoops:
    """Threads with a loop each, kept for the next call; as many as calls at once."""

    def __init__(self) -> None:
        self._idle: list[_Loop] = []
        self._lock = threading.Lock()
        self._closed = False
        self._executor = ThreadPoolExecutor(MAX_CALLS, "deedbook-mcp-beside")

    def take(self) -> _Loop:
        """Return an idle loop."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        loop = asyncio.new_event_loop()
        loop.set_default_executor(self._executor)
        threading.Thread(target=_run, args=(loop,), name="deedbook-mcp-call", daemon=True).start()
        return loop

    def give_back(self, loop: _Loop) -> None:
        """Keep a loop for the next call; called on its own thread."""
        with self._lock:
            if not self._closed:
                self._idle.append(loop)
                return
        loop.stop()

    def close(self) -> None:
        """End every idle thread now, and every other one after its call."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for loop in idle:
            loop.call_soon_threadsafe(loop.stop)
        self._executor.shutdown(wait=False)


class WorkerCall(Generic[T]):
    """Runs one coroutine on one of *loops*; holds *busy* meanwhile."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]], loops: WorkerLoops, busy: anyio.Semaphore) -> None:
        self._make, self._loops, self._busy = make, loops, busy
        self._done: Future[T] = Future()
        self._task: asyncio.Task[T] | None = None
        self._loop: _Loop | None = None
        self._stopped = False

    async def run(self) -> T:
        """Return the result of the coroutine; if the caller is cancelled, cancel it and wait for its end."""
        async with self._busy:
            self._loop = self._loops.take()
            self._loop.call_soon_threadsafe(self._begin, self._loop)
            done = asyncio.wrap_future(self._done)
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                self.cancel()
                done.add_done_callback(_retrieve_exception)
                with anyio.move_on_after(GRACE, shield=True):
                    await asyncio.wait([done])
                raise
            return done.result()

    def cancel(self) -> None:
        """Cancel the coroutine; a synchronous handler in it continues, and its result is recorded."""
        self._stopped = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._cancel)

    # --- on the worker's thread --------------------------------------------------------------------------------------

    def _begin(self, loop: _Loop) -> None:
        self._task = loop.create_task(self._work())
        self._task.add_done_callback(lambda task: self._end(loop, task))
        if self._stopped:
            self._task.cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> T:
        try:
            return await self._make()
        except (KeyboardInterrupt, SystemExit) as problem:  # a handler's own; the loop would end with it
            why = f"the call ended with {type(problem).__name__}"
            raise RuntimeError(why) from problem

    def _end(self, loop: _Loop, task: asyncio.Task[T]) -> None:
        self._loops.give_back(loop)
        problem = CallCancelledError() if task.cancelled() else task.exception()
        if problem is None:
            self._done.set_result(task.result())
        else:
            self._done.set_exception(problem)


def _run(loop: _Loop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _retrieve_exception(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()  # else Python warns about an exception that was not retrieved
