"""The thread and event loop of a kernel's connections to MCP servers."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .connection import Connection
    from .peers import Peer

CLOSING_SECONDS: Final = 5.0


class ConnectionPool:
    """Runs every connection of a kernel; starts at the first call and closes with the kernel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connections: dict[str, Connection] = {}
        self._closings: set[Future[None]] = set()

    def get_connection(self, name: str, make: "Callable[[], Connection]") -> "Connection":
        """Return the connection of that name; the first call makes it."""
        with self._lock:
            if name not in self._connections:
                self._connections[name] = make()
            return self._connections[name]

    def get_peer_connection(self, name: str, peer: "Peer", make: "Callable[[], Connection]") -> "Connection":
        """Return the connection of that name for *peer*, which closes when the peer is gone."""
        own = f"{peer.id} {name}"
        with self._lock:
            is_new = own not in self._connections
        connection = self.get_connection(own, make)
        if is_new:
            peer.on_close(lambda: self._discard(own))
        return connection

    def submit(self, work: Coroutine[Any, Any, Any]) -> "Future[Any]":
        """Run *work* on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._get_loop())

    def close(self) -> None:
        """Close all connections and end the thread; a second call does nothing."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
            connections, self._connections = list(self._connections.values()), {}
        if loop is None or thread is None:
            return
        closing = asyncio.run_coroutine_threadsafe(_close_all(connections), loop)
        wait([closing, *self._closings.copy()], CLOSING_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSING_SECONDS)

    def _discard(self, name: str) -> None:
        """Close the connection of that name, if it is open."""
        with self._lock:
            connection, loop = self._connections.pop(name, None), self._loop
        if connection is not None and loop is not None:
            closing = asyncio.run_coroutine_threadsafe(connection.close(), loop)
            self._closings.add(closing)
            closing.add_done_callback(self._closings.discard)

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name="deedbook-mcp", daemon=True)
                self._thread.start()
            return self._loop


async def _close_all(connections: "list[Connection]") -> None:
    await asyncio.gather(*(each.close() for each in connections), return_exceptions=True)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped, then cancel the tasks that remain."""
    asyncio.set_event_loop(loop)
    logging.getLogger("mcp").addHandler(logging.NullHandler())  # errors carry what it logs
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
