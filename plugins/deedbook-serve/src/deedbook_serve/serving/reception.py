"""Lets connections in, each to its service on a thread of its own, and sends everybody home in the end."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from deedbook.contract import Principal
from deedbook.format.errors import DomainError, Err, Result, fault

from .sockets import peer
from .streams import Stream

MOST: Final = 512
"""Connections that are attended to at once; who comes then is told to come again."""
_REFUSAL: Final = 2.0
"""Seconds that somebody who is not let in has to take the reason."""


class Service(Protocol):
    """What answers at one socket."""

    def attend(self, stream: Stream, principal: Principal) -> None:
        """Answer the connection of *principal* until it ends, on a thread of its own; an `OSError` ends it, too."""
        ...

    def refuse(self, stream: Stream, error: DomainError) -> None:
        """Tell somebody who is not let in why."""
        ...


class ConnectionServer:
    """Accepts what comes to the sockets of *services*; *known* says who a user id is, or why nobody.

    *say* is told of each user id that is not let in, once.
    """

    def __init__(
        self,
        services: Mapping[socket.socket, Service],
        known: Callable[[int], Result[Principal]],
        *,
        say: Callable[[str], None],
        most: int = MOST,
    ) -> None:
        self._say = say
        self._strangers: set[int] = set()
        self._services = services
        self._known = known
        self._most = most
        self._present: dict[Stream, threading.Thread] = {}
        self._turn = threading.Condition()
        self._awake, self._waker = socket.socketpair()
        self._awake.setblocking(False)
        self._waker.setblocking(False)
        self._closing = False

    @property
    def waker(self) -> int:
        """A descriptor; whatever is written to it lets `run` look whether it is to stop (`signal.set_wakeup_fd`)."""
        return self._waker.fileno()

    def run(self) -> None:
        """Accept until `stop`; the calling thread does nothing else, and nobody listens afterwards."""
        try:
            self._run()
        finally:
            for listening in self._services:
                listening.close()

    def _run(self) -> None:
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
                        self._hear()

    def stop(self) -> None:
        """Accept nobody any more; a signal handler may call this."""
        self._closing = True
        with suppress(BlockingIOError):
            self._waker.send(b".")

    def dismiss(self, seconds: float) -> int:
        """Let everybody finish what was begun, for *seconds*; return how many did not."""
        for stream in self.present():
            stream.wake()
        until = time.monotonic() + seconds
        with self._turn:
            while self._present and (left := until - time.monotonic()) > 0:
                self._turn.wait(left)
            return len(self._present)

    def close(self, seconds: float) -> None:
        """End the connections that are left, and wait so long for their threads."""
        for stream in self.present():
            stream.cut()
        self.dismiss(seconds)
        self._awake.close()
        self._waker.close()

    def present(self) -> list[Stream]:
        """Return the connections of this moment."""
        with self._turn:
            return list(self._present)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            self._awake.recv(4096)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:  # who came has gone again, or there is no descriptor left: those who are present go on
            time.sleep(0.01)
            return
        stream = Stream(connection)
        thread = threading.Thread(
            target=self._attend, args=(connection, stream, self._services[listening]), daemon=True, name="deedbook-peer"
        )
        with self._turn:
            self._present[stream] = thread
        try:
            thread.start()
        except RuntimeError:  # no thread can be had
            self._leave(stream)

    def _attend(self, connection: socket.socket, stream: Stream, service: Service) -> None:
        try:
            with suppress(OSError):
                admitted = self._admit(peer(connection))
                if isinstance(admitted, Err):
                    connection.settimeout(_REFUSAL)
                    service.refuse(stream, admitted.error)
                else:
                    service.attend(stream, admitted.value)
        finally:
            self._leave(stream)

    def _admit(self, uid: int) -> Result[Principal]:
        known = self._known(uid)
        if isinstance(known, Err):
            if uid not in self._strangers:
                self._strangers.add(uid)
                self._say(f"not let in: {known.error}")
            return known
        with self._turn:
            if len(self._present) > self._most:
                why = f"{self._most} connections are attended to already; come again"
                return Err(fault("RUNTIME_BUSY", why, retryable=True))
        return known

    def _leave(self, stream: Stream) -> None:
        stream.close()
        with self._turn:
            self._present.pop(stream, None)
            self._turn.notify_all()
