"""One connection as a stream of lines and bytes, with limits on size and time."""

import socket
import time
from contextlib import suppress
from typing import Final

MAX_LINE: Final = 16 * 1024 * 1024
"""The largest size of a line in bytes, with its newline."""
PATIENCE: Final = 30.0
"""Seconds that the other side has to read an answer, or to send the rest of a message."""
_BLOCK: Final = 256 * 1024
_MAX_SKIPPED: Final = 4 * MAX_LINE


class LineTooLongError(Exception):
    """A line was too long; it was skipped, and the next one can be read."""


class Stream:
    """A connection, read and written by one thread; `wake` and `cut` are for other threads.

    The other side may be silent between messages for any time, but not within one. Every failure is an `OSError`.
    """

    def __init__(self, connection: socket.socket, *, patience: float = PATIENCE) -> None:
        self._socket = connection
        self._patience = patience
        self._buffer = bytearray()
        self._searched = 0

    def read_line(self, limit: int = MAX_LINE) -> bytes:
        r"""Return the next line with its ``\n``; ``b""`` if the other side has ended, also in the middle of a line.

        Raises `LineTooLongError`, and `OSError`, also for a line that never ends.
        """
        until = 0.0
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched >= limit:
                self._skip()
            if not self._receive(until):
                return b""
            until = until or time.monotonic() + self._patience
        return self._take(end + 1, limit)

    def read_exactly(self, size: int) -> bytes:
        """Return the next *size* bytes; raises `ConnectionError` if the other side ends before."""
        until = time.monotonic() + self._patience
        while len(self._buffer) < size:
            if not self._receive(until):
                raise ConnectionError("the connection ended in the midst of a message")
        return self._take(size, size)

    def send(self, data: bytes) -> None:
        """Write *data* whole; raises `OSError`, such as `TimeoutError` if the other side does not read it in time."""
        self._socket.settimeout(self._patience)
        self._socket.sendall(data)

    def wake(self) -> None:
        """Let the reader see the end of the input; answers can still be sent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def cut(self) -> None:
        """End the connection in both directions."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the descriptor."""
        self._socket.close()

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _receive(self, until: float) -> bool:
        """Read available data; *until* is the deadline, 0 for none. Return whether there was any."""
        left = until - time.monotonic() if until else None
        if left is not None and left <= 0:
            raise TimeoutError("a message was begun and not ended in time")
        self._socket.settimeout(left)
        data = self._socket.recv(_BLOCK)
        self._buffer += data
        return bool(data)

    def _take(self, size: int, limit: int) -> bytes:
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._searched = 0
        if size > limit:
            raise LineTooLongError
        return found

    def _skip(self) -> None:
        """Read to the end of a line that is too long, without storing it."""
        until, skipped = time.monotonic() + self._patience, 0
        while (end := self._buffer.find(b"\n")) < 0:
            skipped += len(self._buffer)
            self._buffer.clear()
            if skipped > _MAX_SKIPPED or not self._receive(until):
                raise ConnectionError("a line that is too long never ended")
        del self._buffer[: end + 1]
        self._searched = 0
        raise LineTooLongError
