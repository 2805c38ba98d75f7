"""Calls beside the loop that serves: each on a thread with a loop of its own, since a handler may be plain and slow."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import anyio

T = TypeVar("T")

GRACE: Final = 2.0
"""How many seconds a call that was cancelled has to come to its end, before nobody waits for it any more."""
WIDEST: Final = 64
"""How many calls are under way at once; more wait for their turn."""

_Loop = asyncio.AbstractEventLoop


class Cancelled(Exception):  # noqa: N818 - it says what became of a call
    """The coroutine was cancelled; whoever waits for it was not."""


class Lanes:
    """Threads with a loop each, kept for the next call; as many as there are calls under way."""

    def __init__(self) -> None:
        self._idle: list[_Loop] = []
        self._turn = threading.Lock()
        self._closed = False
        self._beside = ThreadPoolExecutor(WIDEST, "deedbook-mcp-beside")

    def take(self) -> _Loop:
        """Return a loop on which nothing runs."""
        with self._turn:
            if self._idle:
                return self._idle.pop()
        loop = asyncio.new_event_loop()
        loop.set_default_executor(self._beside)
        threading.Thread(target=_run, args=(loop,), name="deedbook-mcp-call", daemon=True).start()
        return loop

    def give_back(self, loop: _Loop) -> None:
        """Keep a loop for the next call; called on its own thread."""
        with self._turn:
            if not self._closed:
                self._idle.append(loop)
                return
        loop.stop()

    def close(self) -> None:
        """End every thread that has nothing to do, and each other once it has."""
        with self._turn:
            self._closed = True
            idle, self._idle = self._idle, []
        for loop in idle:
            loop.call_soon_threadsafe(loop.stop)
        self._beside.shutdown(wait=False)


class Lane(Generic[T]):
    """One coroutine, run on one of *lanes*; *busy* is held meanwhile."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]], lanes: Lanes, busy: anyio.Semaphore) -> None:
        self._make, self._lanes, self._busy = make, lanes, busy
        self._done: Future[T] = Future()
        self._task: asyncio.Task[T] | None = None
        self._loop: _Loop | None = None
        self._stopped = False

    async def run(self) -> T:
        """Return what the coroutine comes to; whoever is cancelled meanwhile cancels it and waits for its end."""
        async with self._busy:
            self._loop = self._lanes.take()
            self._loop.call_soon_threadsafe(self._begin, self._loop)
            done = asyncio.wrap_future(self._done)
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                self.cancel()
                done.add_done_callback(_looked_at)
                with anyio.move_on_after(GRACE, shield=True):
                    await asyncio.wait([done])
                raise
            return done.result()

    def cancel(self) -> None:
        """Cancel the coroutine; a plain handler in it goes on, and what it comes to is recorded."""
        self._stopped = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._cancel)

    # --- on the lane's thread ----------------------------------------------------------------------------------------

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
        self._lanes.give_back(loop)
        problem = Cancelled() if task.cancelled() else task.exception()
        if problem is None:
            self._done.set_result(task.result())
        else:
            self._done.set_exception(problem)


def _run(loop: _Loop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _looked_at(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()  # else Python warns that nobody looked
