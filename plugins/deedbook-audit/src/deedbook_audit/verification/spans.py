"""The spans of one ledger: each occurs once, and a parent is an earlier span; eight bytes for each old span.

The newest spans are stored unchanged. Older ones are packed into sorted runs of integers: a lookup is a bisection, and
duplicates are found at the end, slice by slice.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

RUN: Final = 1 << 13
"""The number of spans in a run, and the least number of newest spans that are stored unchanged."""
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
        """Add the next line's span; ``False`` if it is a known duplicate (others: see `find_duplicates`)."""
        if span in self._new or span in self._recent:
            return False
        self._new.add(span)
        if len(self._new) == RUN:
            self._runs.append(array("Q", sorted(int(each, 16) for each in self._new)))
            self._new, self._recent = set(), self._new
        return True

    def __contains__(self, span: bytes) -> bool:
        """Return whether an earlier line had *span*."""
        if span in self._new or span in self._recent or span in self._found:
            return True
        if not self._runs or not self._is_old(int(span, 16)):
            return False
        if len(self._found) >= _MAX_FOUND:  # a cache for frequent lookups, such as the root
            self._found.clear()
        self._found.add(span)
        return True

    def find_duplicates(self) -> Iterator[bytes]:
        """Yield every span that occurs twice, if `add` did not report it."""
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
