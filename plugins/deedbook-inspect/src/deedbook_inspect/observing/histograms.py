"""Durations in buckets of fixed bounds: any number of them in a few hundred integers; pure.

A duration is in whole milliseconds, the resolution of a ledger's times. Up to 64 ms each has its own bucket; above,
each doubling has 32 of equal width, so that a quantile from the buckets is at most 3.2 % above the exact one, and never
below it.
"""

from bisect import bisect_left
from itertools import accumulate
from typing import Final

import attrs

__all__ = ["BOUNDS", "Histogram"]

BOUNDS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 1_800_000)
"""The exported upper bounds in milliseconds; they are counted exactly, beside the finer buckets."""

_EXACT: Final = 64
_STEPS: Final = 32
_BITS: Final = 6  # bits of a number of `_EXACT` - 1


def _find_bucket(value: int) -> int:
    """Return the number of the bucket that holds *value*."""
    if value < _EXACT:
        return value
    shift = value.bit_length() - _BITS
    return _EXACT + (shift - 1) * _STEPS + (value >> shift) - _STEPS


def _find_highest(bucket: int) -> int:
    """Return the greatest value that a bucket holds."""
    if bucket < _EXACT:
        return bucket
    doubling, step = divmod(bucket - _EXACT, _STEPS)
    return ((_STEPS + step + 1) << (doubling + 1)) - 1


@attrs.define
class Histogram:
    """Durations: their *count*, their *sum* and the *longest*, in milliseconds."""

    count: int = 0
    sum: int = 0
    longest: int = 0
    _fine: dict[int, int] = attrs.field(factory=dict)
    _wide: list[int] = attrs.field(factory=lambda: [0] * (len(BOUNDS) + 1))

    def add(self, value: int) -> None:
        """Count a duration of *value* milliseconds, which is not negative."""
        self.count, self.sum, self.longest = self.count + 1, self.sum + value, max(self.longest, value)
        bucket = _find_bucket(value)
        self._fine[bucket] = self._fine.get(bucket, 0) + 1
        self._wide[bisect_left(BOUNDS, value)] += 1

    def quantile(self, share: float) -> int:
        """Return an upper bound of the duration that *share* of all (0 to 1) do not exceed; 0 without durations."""
        wanted = max(1, -int(-share * self.count // 1))
        seen = 0
        for bucket in sorted(self._fine):
            seen += self._fine[bucket]
            if seen >= wanted:
                return min(_find_highest(bucket), self.longest)
        return 0

    def count_cumulative(self) -> list[int]:
        """Return the number of durations up to each of `BOUNDS`, and last the total."""
        return list(accumulate(self._wide))

    def as_json(self) -> dict[str, int] | None:
        """Return count, sum and quantiles; ``None`` without durations."""
        if not self.count:
            return None
        shares = {"p50": self.quantile(0.5), "p90": self.quantile(0.9), "p99": self.quantile(0.99)}
        return {"count": self.count, "sum": self.sum, **shares, "max": self.longest}
