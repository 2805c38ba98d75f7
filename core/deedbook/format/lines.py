r"""The complete lines of a file of any size, and the torn bytes after the last one."""

import io
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

import attrs

Watch: TypeAlias = Callable[[int], None]
"""Called with the number of further bytes read."""
BLOCK: Final = 1 << 17


@attrs.frozen
class TornBytes:
    """Bytes after the last complete line: their *offset* in the file and how many there are."""

    offset: int
    size: int


class Blocks(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return at most *size* further bytes; none at the end."""


class Lines:
    r"""The lines of *file*, split on ``\n`` only and yielded without it; afterwards `torn` says what followed the last.

    Of a line longer than *limit* bytes little more than the first *limit* is kept, so that memory stays flat. *watch*
    is told as reading goes on.
    """

    def __init__(self, file: Blocks, limit: int, watch: Watch | None = None) -> None:
        self._bounded = _Bounded(file, limit, watch)

    def __iter__(self) -> Iterator[bytes]:
        for line in self.whole():
            if line.endswith(b"\n"):
                yield line[:-1]

    def whole(self) -> Iterator[bytes]:
        r"""Return the lines with their ``\n``; a last one without it is no line."""
        return io.BufferedReader(self._bounded, BLOCK)

    @property
    def torn(self) -> TornBytes | None:
        """The bytes after the last line, once all lines were read."""
        rest = self._bounded.rest
        return TornBytes(self._bounded.size - rest, rest) if rest else None


class _Bounded(io.RawIOBase):
    """A file whose overlong lines are truncated: *size* bytes were read, *rest* of them after the last newline."""

    def __init__(self, file: Blocks, limit: int, watch: Watch | None) -> None:
        self._file, self._limit, self._watch = file, limit, watch
        self.size = self.rest = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # a writable buffer, which has no name before Python 3.12
        while block := self._file.read(len(buffer)):
            skipped = 0
            if self.rest > self._limit:
                found = block.find(b"\n")
                skipped = len(block) if found < 0 else found
            after = len(block) - block.rfind(b"\n") - 1
            self.rest = after if after < len(block) else self.rest + len(block)
            self.size += len(block)
            if self._watch:
                self._watch(len(block))
            if skipped < len(block):
                buffer[: len(block) - skipped] = block[skipped:] if skipped else block
                return len(block) - skipped
        return 0
