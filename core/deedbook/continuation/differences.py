"""Differences between two JSON values, by JSON pointer (RFC 6901)."""

import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from deedbook.contract.pointers import join_pointer
from deedbook.format.canonical import SEALED_KEY

WIDTH: Final = 200
"""How many characters of a value are shown."""
_NOTHING: Final = object()


class ValueDifference(NamedTuple):
    """One difference between two values: its *path*, and the values *before* and *now*, ``None`` if missing."""

    path: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        sides = ("nothing" if each is None else each for each in (self.before, self.now))
        return f"{self.path or 'the whole'}: recorded {next(sides)}, now {next(sides)}"


def find_differences(before: Any, now: Any, path: str = "") -> Iterator[ValueDifference]:
    """Yield where *before* and *now* differ, in the order of the members; sealed values are not shown."""
    if isinstance(before, dict) and isinstance(now, dict) and not (_is_sealed(before) or _is_sealed(now)):
        for key in sorted({*before, *now}):
            yield from find_differences(before.get(key, _NOTHING), now.get(key, _NOTHING), path + join_pointer(key))
    elif isinstance(before, list) and isinstance(now, list):
        for index, (old, new) in enumerate(zip_longest(before, now, fillvalue=_NOTHING)):
            yield from find_differences(old, new, f"{path}/{index}")
    elif _show(before) != _show(now) or not _same(before, now):
        yield ValueDifference(path, _show(before), _show(now))


def _same(before: Any, now: Any) -> bool:
    """Return whether two values are equal; two sealed ones may be, since their salts differ."""
    return before is now or (_is_sealed(before) and _is_sealed(now)) or json.dumps(before) == json.dumps(now)


def _show(value: Any) -> str | None:
    if value is _NOTHING:
        return None
    if _is_sealed(value):
        return "[sealed]"
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def _is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and SEALED_KEY in value
