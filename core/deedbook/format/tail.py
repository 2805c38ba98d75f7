"""The end of an append-only file: its last whole line, and the bytes after it."""

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from .errors import LedgerError, fault

MAX_TAIL: Final = 64 * 1024 * 1024
"""No writer leaves more bytes than this after the last valid line, so more is damage."""
_BLOCK: Final = 64 * 1024


class Tail(NamedTuple):
    """The end of a file's valid part, its last line (``b""`` in an empty file), and the number of torn bytes."""

    end: int
    last: bytes
    torn: int


def lines_from_end(fd: int, end: int, *, place: str) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each line, the last one first; only that one may lack its newline.

    Reads no more than it yields, up to one block. A line of more than `MAX_TAIL` bytes is ``LEDGER_UNSOUND``.
    """
    held, start, block = b"", end, _BLOCK
    while True:
        cut = held.rfind(b"\n", 0, max(len(held) - 1, 0)) + 1
        if cut or (held and not start):
            yield start + cut, held[cut:]
            held, block = held[:cut], _BLOCK
        elif not start:
            return
        elif len(held) > MAX_TAIL:
            why = f"a line, or what follows the last one, is longer than {MAX_TAIL} bytes; verify the file"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))
        else:
            begin = max(start - block, 0)
            held, start, block = os.pread(fd, start - begin, begin) + held, begin, block * 2


def find_tail(fd: int, *, place: str) -> Tail:
    """Find the last whole line without a full read; the bytes after it are torn.

    An incomplete write leaves no newline, zeros, or bytes that do not have the shape of a line. Any other fault of a
    line is damage, which recovery does not judge.
    """
    size = os.fstat(fd).st_size
    for offset, line in lines_from_end(fd, size, place=place):
        end = offset + len(line)
        if size - offset > MAX_TAIL:
            break
        if line.startswith(b"{") and line.endswith(b"}\n") and b"\0" not in line:
            return Tail(end, line, size - end)
    if size > MAX_TAIL:
        raise LedgerError(fault("LEDGER_UNSOUND", "no whole line near its end; verify the file", place=place))
    return Tail(0, b"", size)
