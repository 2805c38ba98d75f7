"""Timing: candidates take turns in rounds, and what counts is the median of the rounds' ratios."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Final, TypeAlias

Work: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[], int]

CPU: Final[Clock] = time.thread_time_ns
"""The CPU time of this thread, in nanoseconds: what other processes and the disk do does not count."""
WALL: Final[Clock] = time.perf_counter_ns

_BATCH_NS: Final = 10_000_000
_ROUNDS: Final = 25


class Times:
    """Nanoseconds per call of each candidate, one figure a round."""

    def __init__(self, rounds: Mapping[str, list[float]]) -> None:
        self._rounds = rounds

    def ratio(self, name: str, floor: str) -> float:
        """Return how many times as long *name* takes as *floor*: the median over the rounds."""
        return median(a / b for a, b in zip(self._rounds[name], self._rounds[floor], strict=True))

    def added(self, name: str, base: str, pieces: int) -> float:
        """Return the microseconds that each of *pieces* adds to *base* in *name*: the median over the rounds."""
        pairs = zip(self._rounds[name], self._rounds[base], strict=True)
        return median((a - b) / pieces / 1000 for a, b in pairs)

    def micros(self, name: str) -> float:
        """Return the microseconds of one call, for context only."""
        return median(self._rounds[name]) / 1000


def take_turns(
    candidates: Mapping[str, Work], *, clock: Clock = CPU, rounds: int = _ROUNDS, batch_ns: int = _BATCH_NS
) -> Times:
    """Run all *candidates* in turn, *rounds* times, each in batches that take about *batch_ns*."""
    sizes = {name: _batch_size(work, clock, batch_ns) for name, work in candidates.items()}
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, work in candidates.items():
            found[name].append(_timed(work, sizes[name], clock) / sizes[name])
    return Times(found)


def once_each(candidates: Mapping[str, Work], *, clock: Clock, rounds: int) -> Times:
    """Run all *candidates* in turn, one call a round: for work that takes long, or that one counts call by call."""
    return take_turns(candidates, clock=clock, rounds=rounds, batch_ns=0)


def _batch_size(work: Work, clock: Clock, batch_ns: int) -> int:
    """Warm up, and find out how many calls make a batch."""
    size = 1
    while (spent := _timed(work, size, clock)) < batch_ns // 4:
        size *= 4 if spent < batch_ns // 16 else 2
    return max(1, round(size * batch_ns / max(spent, 1)))


def _timed(work: Work, times: int, clock: Clock) -> int:
    turns = range(times)
    begun = clock()
    for _ in turns:
        work()
    return clock() - begun
