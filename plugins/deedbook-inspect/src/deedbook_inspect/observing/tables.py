"""Tables of bounded size, for counts under external names; pure."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

__all__ = ["LIMIT", "OTHER", "Table", "count_word", "read_name"]

V = TypeVar("V")

LIMIT: Final = 1000
"""The largest number of separate keys of a table."""
OTHER: Final = "[other]"
"""The key for all further keys."""


_WORDS: Final = 100


class Table(Generic[V]):
    """Values by a key of several names: the first `LIMIT` keys, and all others under `OTHER`."""

    def __init__(self, make: Callable[[], V], *, limit: int = LIMIT) -> None:
        self._make, self._limit = make, limit
        self._rows: dict[tuple[str, ...], V] = {}

    def get(self, *key: str) -> V:
        """Return the value under *key*, made on first use."""
        found = self._rows.get(key)
        if found is not None:
            return found
        place = key if len(self._rows) < self._limit else (OTHER,) * len(key)
        return self._rows.setdefault(place, self._make())

    def rows(self) -> Iterator[tuple[tuple[str, ...], V]]:
        """Yield every key with its value, in the order of the keys."""
        yield from sorted(self._rows.items(), key=lambda row: row[0])


def count_word(counted: Counter[str], word: str) -> None:
    """Count one more of *word*; a forged ledger may have any number of words, so they are bounded."""
    counted[word if word in counted or len(counted) < _WORDS else OTHER] += 1


def read_name(value: object, otherwise: str = "[none]") -> str:
    """Return a name from a payload, at most 200 characters; a sealed or missing one has its own word."""
    if isinstance(value, str):
        return value[:200]
    return otherwise if value is None else "[sealed]"
