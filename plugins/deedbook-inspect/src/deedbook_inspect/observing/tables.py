"""Tables of bounded size: what is counted under names that come from outside; pure."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

__all__ = ["LIMIT", "OTHER", "Table", "count_word", "read_name"]

V = TypeVar("V")

LIMIT: Final = 1000
"""How many keys a table tells apart."""
OTHER: Final = "[other]"
"""Under this name stands whatever came after as many keys."""


_WORDS: Final = 100


class Table(Generic[V]):
    """Values by a key of several names, the first `LIMIT` keys apart and all others under `OTHER`."""

    def __init__(self, make: Callable[[], V], *, limit: int = LIMIT) -> None:
        self._make, self._limit = make, limit
        self._rows: dict[tuple[str, ...], V] = {}

    def get(self, *key: str) -> V:
        """Return the value under *key*, made when it is asked for first."""
        found = self._rows.get(key)
        if found is not None:
            return found
        place = key if len(self._rows) < self._limit else (OTHER,) * len(key)
        return self._rows.setdefault(place, self._make())

    def rows(self) -> Iterator[tuple[tuple[str, ...], V]]:
        """Yield every key with its value, in the order of the keys."""
        yield from sorted(self._rows.items(), key=lambda row: row[0])


def count_word(counted: Counter[str], word: str) -> None:
    """Count one more of *word*, of which there are few; in a ledger that somebody forged there may be many."""
    counted[word if word in counted or len(counted) < _WORDS else OTHER] += 1


def read_name(value: object, otherwise: str = "[none]") -> str:
    """Return a name out of a payload, at most 200 characters of it; a sealed one, or none at all, is said to be so."""
    if isinstance(value, str):
        return value[:200]
    return otherwise if value is None else "[sealed]"
