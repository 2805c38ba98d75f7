"""Accepts connections, runs one service thread for each, and drains them on shutdown."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from deedbook.contract import Principal
from deedbook.format.errors import DomainError, Err, Result, fault

from .sockets import get_peer_uid
from .streams import Stream

MAX_CONNECTIONS: Final = 512
"""The largest number of connections at once; further ones are told to retry."""
_REFUSAL_TIMEOUT: Final = 2.0
"""Seconds that a refused client has to read the reason."""


class Service(Protocol):
    """The service at one socket."""

    def serve(self, stream: Stream, principal: Principal) -> None:
        """Serve the connection of *principal* until it ends, on a thread of its own; an `OSError` also ends it."""
        ...

    def refuse(self, stream: Stream, error: DomainError) -> None:
        """Send the reason to a refused client."""
        ...


class ConnectionServer:
    """Accepts connections at the sockets of *services*; *find_principal* returns the principal of a user id.

    *report* receives one message for each refused user id.
    """

    def __init__(
        self,
        services: Mapping[socket.socket, Service],
        find_principal: Callable[[int], Result[Principal]],
        *,
        report: Callable[[str], None],
        most: int = MAX_CONNECTIONS,
    ) -> None:
        self._report = report
        self._refused_uids: set[int] = set()
        self._services = services
        self._find_principal = find_principal
        self._most = most
        self._connections: dict[Stream, threading.Thread] = {}
        self._condition = threading.Condition()
        self._awake, self._waker = socket.socketpair()
        self._awake.setblocking(False)
        self._waker.setblocking(False)
        self._closing = False

    @property
    def waker(self) -> int:
        """A descriptor; a byte written to it makes `serve` check whether to stop (`signal.set_wakeup_fd`)."""
        return self._waker.fileno()

    def serve(self) -> None:
        """Accept connections until `stop`, on the calling thread; close the sockets afterwards."""
        try:
            self._serve()
        finally:
            for listening in self._services:
                listening.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._awake, selectors.EVENT_READ)
            for listening in self._services:
                listening.setblocking(False)
                selector.register(listening, selectors.EVENT_READ)
            while not self._closing:
                for key, _ in selector.select():
                    if key.fileobj in self._services:
                        self._accept(key.fileobj)  # type: ignore[arg-type]
                    else:
                        self._clear_waker()

    def stop(self) -> None:
        """Accept no more connections; safe in a signal handler."""
        self._closing = True
        with suppress(BlockingIOError):
            self._waker.send(b".")

    def drain(self, seconds: float) -> int:
        """Let each connection finish its request, for up to *seconds*; return how many did not."""
        for stream in self.connections():
            stream.wake()
        until = time.monotonic() + seconds
        with self._condition:
            while self._connections and (remaining := until - time.monotonic()) > 0:
                self._condition.wait(remaining)
            return len(self._connections)

    def close(self, seconds: float) -> None:
        """Cut the remaining connections, and wait up to *seconds* for their threads."""
        for stream in self.connections():
            stream.cut()
        self.drain(seconds)
        self._awake.close()
        self._waker.close()

    def connections(self) -> list[Stream]:
        """Return the current connections."""
        with self._condition:
            return list(self._connections)

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _clear_waker(self) -> None:
        with suppress(BlockingIOError):
            self._awake.recv(4096)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:  # the client is gone again, or no descriptor is left: open connections go on
            time.sleep(0.01)
            return
        stream = Stream(connection)
        thread = threading.Thread(
            target=self._serve_connection,
            args=(connection, stream, self._services[listening]),
            daemon=True,
            name="deedbook-peer",
        )
        with self._condition:
            self._connections[stream] = thread
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads
            self._remove(stream)

    def _serve_connection(self, connection: socket.socket, stream: Stream, service: Service) -> None:
        try:
            with suppress(OSError):
                admitted = self._admit(get_peer_uid(connection))
                if isinstance(admitted, Err):
                    connection.settimeout(_REFUSAL_TIMEOUT)
                    service.refuse(stream, admitted.error)
                else:
                    service.serve(stream, admitted.value)
        finally:
            self._remove(stream)

    def _admit(self, uid: int) -> Result[Principal]:
        principal = self._find_principal(uid)
        if isinstance(principal, Err):
            if uid not in self._refused_uids:
                self._refused_uids.add(uid)
                self._report(f"not let in: {principal.error}")
            return principal
        with self._condition:
            if len(self._connections) > self._most:
                why = f"{self._most} connections are attended to already; come again"
                return Err(fault("RUNTIME_BUSY", why, retryable=True))
        return principal

    def _remove(self, stream: Stream) -> None:
        stream.close()
        with self._condition:
            self._connections.pop(stream, None)
            self._condition.notify_all()
