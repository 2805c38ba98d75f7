"""Calls beside the loop that serves: each on a thread with a loop of its own, since a handler may be plain and slow."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import anyio

T = TypeVar("T")

GRACE: Final = 2.0
"""How many seconds a call that was cancelled has to come to its end, before nobody waits for it any more."""
WIDEST: Final = 64
"""How many calls are under way at once; more wait for their turn."""


class Lane(Generic[T]):
    """One coroutine on a thread of its own. *busy* is held meanwhile."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]], busy: anyio.Semaphore) -> None:
        self._make, self._busy = make, busy
        self._done: Future[T] = Future()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[T]] | None = None
        self._stopped = False
        self._turn = threading.Lock()

    async def run(self) -> T:
        """Return what the coroutine comes to; whoever is cancelled meanwhile cancels it and waits for its end."""
        async with self._busy:
            threading.Thread(target=self._work, name="deedbook-mcp-call", daemon=True).start()
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
        with self._turn:
            self._stopped = True
            running = self._running
        if running is not None:
            with suppress(RuntimeError):  # it has ended by itself
                running[0].call_soon_threadsafe(running[1].cancel)

    def _work(self) -> None:
        try:
            self._done.set_result(asyncio.run(self._main()))
        except BaseException as problem:  # noqa: BLE001 - carried over to who waits
            self._done.set_exception(_told(problem))

    async def _main(self) -> T:
        task = asyncio.current_task()
        assert task is not None
        with self._turn:
            if self._stopped:
                raise Cancelled
            self._running = asyncio.get_running_loop(), task
        try:
            return await self._make()
        finally:
            with self._turn:
                self._running = None


class Cancelled(Exception):  # noqa: N818 - it says what became of a call
    """The coroutine was cancelled; whoever waits for it was not."""


def _looked_at(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()  # else Python warns that nobody looked


def _told(problem: BaseException) -> BaseException:
    return Cancelled() if isinstance(problem, asyncio.CancelledError) else problem
