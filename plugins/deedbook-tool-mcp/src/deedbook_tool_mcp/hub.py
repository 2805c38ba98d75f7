"""The one thread and event loop of a kernel's connections to MCP servers."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .connection import Connection

CLOSING_SECONDS: Final = 5.0


class Hub:
    """Runs every connection of a kernel; begun at the first call, closed with the kernel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connections: dict[str, Connection] = {}

    def connection(self, name: str, make: "Callable[[], Connection]") -> "Connection":
        """Return the connection of that name, made at the first need."""
        with self._lock:
            if name not in self._connections:
                self._connections[name] = make()
            return self._connections[name]

    def submit(self, work: Coroutine[Any, Any, Any]) -> "Future[Any]":
        """Run *work* on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def close(self) -> None:
        """Close all connections, and end the thread; twice is fine."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
            connections, self._connections = list(self._connections.values()), {}
        if loop is None or thread is None:
            return
        closing = asyncio.run_coroutine_threadsafe(_closed(connections), loop)
        with suppress(Exception):
            closing.result(CLOSING_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSING_SECONDS)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="deedbook-mcp", daemon=True)
                self._thread.start()
            return self._loop


async def _closed(connections: "list[Connection]") -> None:
    await asyncio.gather(*(each.close() for each in connections), return_exceptions=True)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped; then what is left of its tasks is cancelled."""
    asyncio.set_event_loop(loop)
    logging.getLogger("mcp").addHandler(logging.NullHandler())  # what it logs is told by errors, not on a terminal
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
