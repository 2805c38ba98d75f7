"""The spans of one ledger: each is there once, and a parent is one of those before; eight bytes for each that is old.

The newest are held as they stand. Older ones are packed into sorted runs of integers. Whether an old span is known is
asked by bisection; whether one is there twice, once all were read, slice by slice.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

RUN: Final = 1 << 13
"""How many spans a run has, and how many of the newest are held as they stand, at least."""
_MAX_FOUND: Final = 4096
_WHOLE: Final = 1 << 64


class Spans:
    """The spans of one ledger in the order of its lines."""

    def __init__(self) -> None:
        self._new: set[bytes] = set()
        self._recent: frozenset[bytes] | set[bytes] = frozenset()
        self._runs: list[array[int]] = []
        self._found: set[bytes] = set()

    def add(self, span: bytes) -> bool:
        """Take in the next line's span; ``False`` if it is known to be there already (else `twice` says so later)."""
        if span in self._new or span in self._recent:
            return False
        self._new.add(span)
        if len(self._new) == RUN:
            self._runs.append(array("Q", sorted(int(each, 16) for each in self._new)))
            self._new, self._recent = set(), self._new
        return True

    def __contains__(self, span: bytes) -> bool:
        """Say whether a line before had *span*."""
        if span in self._new or span in self._recent or span in self._found:
            return True
        if not self._runs or not self._is_old(int(span, 16)):
            return False
        if len(self._found) >= _MAX_FOUND:  # what is asked for again and again, as the root is, is found quickly
            self._found.clear()
        self._found.add(span)
        return True

    def twice(self) -> Iterator[bytes]:
        """Yield every span that is there twice, as far as `add` did not know it."""
        runs = [*self._runs, array("Q", sorted(int(each, 16) for each in self._new))] if self._runs else []
        step = _WHOLE // len(runs) + 1 if runs else _WHOLE
        for low in range(0, _WHOLE, step) if runs else ():
            seen: set[int] = set()
            for run in runs:
                part = run[bisect_left(run, low) : bisect_left(run, low + step)]
                again = seen.intersection(part)
                yield from (b"%016x" % each for each in sorted(again))
                seen.update(part)

    def _is_old(self, span: int) -> bool:
        for run in reversed(self._runs):
            at = bisect_left(run, span)
            if at < len(run) and run[at] == span:
                return True
        return False
