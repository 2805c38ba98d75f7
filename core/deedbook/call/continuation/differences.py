"""What differs between two JSON values, JSON pointer by JSON pointer (RFC 6901)."""

import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from deedbook.format.canonical import SEALED_KEY
from deedbook.format.pointers import join_pointer

WIDTH: Final = 200
"""Characters of a value that are told."""
_NOTHING: Final = object()


class Difference(NamedTuple):
    """One place where two values part: its *path*, and what stands there before and now, ``None`` for nothing."""

    path: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        told = ("nothing" if each is None else each for each in (self.before, self.now))
        return f"{self.path or 'the whole'}: recorded {next(told)}, now {next(told)}"


def differences(before: Any, now: Any, path: str = "") -> Iterator[Difference]:
    """Yield where *before* and *now* part, in the order of the members; what is sealed on either side is not told."""
    if isinstance(before, dict) and isinstance(now, dict) and not (_sealed(before) or _sealed(now)):
        for key in sorted({*before, *now}):
            yield from differences(before.get(key, _NOTHING), now.get(key, _NOTHING), path + join_pointer(key))
    elif isinstance(before, list) and isinstance(now, list):
        for index, (old, new) in enumerate(zip_longest(before, now, fillvalue=_NOTHING)):
            yield from differences(old, new, f"{path}/{index}")
    elif _told(before) != _told(now) or not _same(before, now):
        yield Difference(path, _told(before), _told(now))


def _same(before: Any, now: Any) -> bool:
    """Say whether two values are the same; two sealed ones may be, and their salts differ."""
    return before is now or (_sealed(before) and _sealed(now)) or json.dumps(before) == json.dumps(now)


def _told(value: Any) -> str | None:
    if value is _NOTHING:
        return None
    if _sealed(value):
        return "[sealed]"
    said = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return said if len(said) <= WIDTH else f"{said[: WIDTH - 1]}…"


def _sealed(value: Any) -> bool:
    return isinstance(value, dict) and SEALED_KEY in value
