"""Timing: candidates take turns in rounds, and what counts is the median of the rounds' ratios."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from typing import Final, TypeAlias

import attrs

Work: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[], int]

CPU: Final[Clock] = time.thread_time_ns
"""The CPU time of this thread, in nanoseconds: what other processes and the disk do does not count."""
WALL: Final[Clock] = time.perf_counter_ns

_BATCH_NS: Final = 10_000_000
_ROUNDS: Final = 25
_QUICK_BATCH_NS: Final = 100_000
_QUICK_ROUNDS: Final = 2


@attrs.frozen
class Figure:
    """A measured number: the median of its rounds, and the quartiles (half of the rounds lie between them)."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, rounds: Sequence[float]) -> "Figure":
        """Return the figure of several rounds."""
        if len(rounds) == 1:
            return cls(rounds[0], rounds[0], rounds[0])
        low, _, high = quantiles(rounds, n=4, method="inclusive")
        return cls(median(rounds), low, high)

    def times(self, factor: float) -> "Figure":
        """Return the same figure in another unit."""
        return Figure(self.value * factor, self.low * factor, self.high * factor)


class Times:
    """Nanoseconds per call of each candidate, one figure a round."""

    def __init__(self, rounds: Mapping[str, Sequence[float]]) -> None:
        self._rounds = rounds

    def ratio(self, name: str, floor: str) -> Figure:
        """Return how many times as long *name* takes as *floor*, round by round."""
        return Figure.of([a / b for a, b in zip(self._rounds[name], self._rounds[floor], strict=True)])

    def ratio_to_sum(self, name: str, *floors: str) -> Figure:
        """Return how many times as long *name* takes as all *floors* together, round by round."""
        sums = [sum(each) for each in zip(*(self._rounds[floor] for floor in floors), strict=True)]
        return Figure.of([a / b for a, b in zip(self._rounds[name], sums, strict=True)])

    def less(self, base: str) -> "Times":
        """Return the times of all, each without what *base* took in the same round."""
        return Times(
            {
                name: [a - b for a, b in zip(each, self._rounds[base], strict=True)]
                for name, each in self._rounds.items()
            }
        )

    def added(self, name: str, base: str, pieces: int) -> Figure:
        """Return the microseconds that each of *pieces* adds to *base* in *name*, round by round."""
        pairs = zip(self._rounds[name], self._rounds[base], strict=True)
        return Figure.of([(a - b) / pieces / 1000 for a, b in pairs])

    def micros(self, name: str, calls: int = 1) -> Figure:
        """Return the microseconds of one of *calls* that *name* makes, for context only."""
        return Figure.of([each / calls / 1000 for each in self._rounds[name]])


@attrs.frozen
class Plan:
    """How much is measured: enough for figures, or, when *quick*, only what shows that everything runs."""

    quick: bool = False

    def size(self, full: int, quick: int) -> int:
        """Return how many pieces of something to make or to time."""
        return quick if self.quick else full

    def take_turns(
        self,
        candidates: Mapping[str, Work],
        *,
        clock: Clock = CPU,
        rounds: int = _ROUNDS,
        batch_ns: int = _BATCH_NS,
    ) -> Times:
        """Run all *candidates* in turn, *rounds* times, each in batches that take about *batch_ns*.

        Every other round goes through them backwards, so that none always follows the same one.
        """
        if self.quick:
            rounds, batch_ns = min(rounds, _QUICK_ROUNDS), min(batch_ns, _QUICK_BATCH_NS)
        sizes = {name: _batch_size(work, clock, batch_ns) for name, work in candidates.items()}
        found: dict[str, list[float]] = {name: [] for name in candidates}
        for turn in range(rounds):
            for name in list(candidates) if turn % 2 == 0 else reversed(candidates):
                found[name].append(_timed(candidates[name], sizes[name], clock) / sizes[name])
        return Times(found)

    def once_each(self, candidates: Mapping[str, Work], *, clock: Clock = CPU, rounds: int) -> Times:
        """Run all *candidates* in turn, one call a round: for work that takes long, or that is counted call by call."""
        return self.take_turns(candidates, clock=clock, rounds=rounds, batch_ns=0)


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
