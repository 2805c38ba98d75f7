r"""The complete lines of a file that may be of any size, and what is torn off behind the last one."""

from collections.abc import Iterator
from typing import BinaryIO, Final

from .report import Torn

BLOCK: Final = 1 << 20


class Lines:
    r"""The lines of *file*, split on ``\n`` only and yielded without it; afterwards `torn` says what followed the last.

    Of a line longer than *limit* bytes only the first *limit* + 1 are kept, so that memory stays flat.
    """

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file = file
        self._limit = limit
        self.torn: Torn | None = None

    def __iter__(self) -> Iterator[bytes]:
        rest, begun, offset = b"", 0, 0
        while block := self._file.read(BLOCK):
            *whole, last = block.split(b"\n")
            if whole:
                begun = offset + len(block) - len(last)
                whole[0], rest = rest + whole[0], b""
                yield from whole
            rest = (rest + last)[: self._limit + 1]
            offset += len(block)
        if offset > begun:
            self.torn = Torn(begun, offset - begun)
