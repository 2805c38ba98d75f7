"""One connection as a stream of lines and bytes, bounded in size and time."""

import socket
import time
from contextlib import suppress
from typing import Final

MAX_LINE: Final = 16 * 1024 * 1024
"""How many bytes a line may have, with its newline."""
PATIENCE: Final = 30.0
"""Seconds that the other side has to take an answer, or to send the rest of what it began."""
_BLOCK: Final = 256 * 1024
_SKIPPED: Final = 4 * MAX_LINE


class LineTooLongError(Exception):
    """A line was longer than it may be; it was skipped, and the next one can be read."""


class Stream:
    """A connection, read and written by one thread; `wake` and `cut` are for others.

    The other side may be silent between messages for as long as it likes, and not in the midst of one. Whatever goes
    wrong with it is an `OSError`.
    """

    def __init__(self, connection: socket.socket, *, patience: float = PATIENCE) -> None:
        self._socket = connection
        self._patience = patience
        self._held = bytearray()
        self._seen = 0

    def line(self, limit: int = MAX_LINE) -> bytes:
        r"""Return the next line with its ``\n``; ``b""`` where the other side has ended, half a line or not.

        Raises `LineTooLongError`, and `OSError`: also for a line that never ends.
        """
        until = 0.0
        while (end := self._held.find(b"\n", self._seen)) < 0:
            self._seen = len(self._held)
            if self._seen >= limit:
                self._skip()
            if not self._more(until):
                return b""
            until = until or time.monotonic() + self._patience
        return self._taken(end + 1, limit)

    def exactly(self, size: int) -> bytes:
        """Return the next *size* bytes; raises `ConnectionError` if the other side ends before."""
        until = time.monotonic() + self._patience
        while len(self._held) < size:
            if not self._more(until):
                raise ConnectionError("the connection ended in the midst of a message")
        return self._taken(size, size)

    def send(self, data: bytes) -> None:
        """Write *data* whole; raises `OSError`, `TimeoutError` among them, where nobody takes it in time."""
        self._socket.settimeout(self._patience)
        self._socket.sendall(data)

    def wake(self) -> None:
        """Let who reads see the end of what has come so far; what is to be answered still can be."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def cut(self) -> None:
        """End the connection, whoever is at it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the descriptor back."""
        self._socket.close()

    # --- parts --------------------------------------------------------------------------------------------------------

    def _more(self, until: float) -> bool:
        """Read what is there; *until* is when patience ends, 0 where it never does. Say whether there was anything."""
        left = until - time.monotonic() if until else None
        if left is not None and left <= 0:
            raise TimeoutError("a message was begun and not ended in time")
        self._socket.settimeout(left)
        data = self._socket.recv(_BLOCK)
        self._held += data
        return bool(data)

    def _taken(self, size: int, limit: int) -> bytes:
        found = bytes(self._held[:size])
        del self._held[:size]
        self._seen = 0
        if size > limit:
            raise LineTooLongError
        return found

    def _skip(self) -> None:
        """Read to the end of a line that is too long, without holding it."""
        until, skipped = time.monotonic() + self._patience, 0
        while (end := self._held.find(b"\n")) < 0:
            skipped += len(self._held)
            self._held.clear()
            if skipped > _SKIPPED or not self._more(until):
                raise ConnectionError("a line that is too long never ended")
        del self._held[: end + 1]
        self._seen = 0
        raise LineTooLongError
