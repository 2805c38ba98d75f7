"""Which recorded request another one is: by the digest of what they say, without what may differ."""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice, zip_longest
from typing import Any, Final, NamedTuple

from deedbook.contract.pointers import join_pointer, split_pointer

SHOWN: Final = 100
"""Characters of a value that a difference shows."""
MOST: Final = 200
"""Differences that are counted between two requests."""
_NOTHING: Final = object()


class Difference(NamedTuple):
    """Where two requests part (a JSON pointer), and what stands there in the recorded one and in the other."""

    path: str
    recorded: str
    asked: str

    def __str__(self) -> str:
        return f"{self.path or '/'}: recorded {self.recorded}, asked {self.asked}"


def compared(request: Any, ignored: Sequence[str]) -> Any:
    """Return what of a request is compared: as version 2, without the members that *ignored* points to.

    ``*`` in a pointer stands for every member of an object or a list.
    """
    copied = _plain(request)
    if isinstance(copied, dict) and copied.get("schema_version") == "v1":
        copied["schema_version"] = "v2"
    for pointer in ignored:
        _remove(copied, split_pointer(pointer))
    return copied


def key_of(value: Any) -> str:
    """Return the digest of a JSON value: equal values have equal ones, however their members were ordered."""
    said = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def differences(recorded: Any, asked: Any) -> list[Difference]:
    """Return where two values part, in order, at most `MOST`."""
    return list(islice(_parts(recorded, asked, ""), MOST))


def _parts(recorded: Any, asked: Any, path: str) -> Iterator[Difference]:
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for key in sorted({*recorded, *asked}):
            yield from _parts(recorded.get(key, _NOTHING), asked.get(key, _NOTHING), path + join_pointer(key))
    elif isinstance(recorded, list) and isinstance(asked, list):
        for index, (one, other) in enumerate(zip_longest(recorded, asked, fillvalue=_NOTHING)):
            yield from _parts(one, other, f"{path}/{index}")
    elif recorded is _NOTHING or asked is _NOTHING or key_of(recorded) != key_of(asked):
        one, other = _format_value(recorded), _format_value(asked)
        at = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
        yield Difference(path, _excerpt(one, at), _excerpt(other, at))


def _format_value(value: Any) -> str:
    return "nothing" if value is _NOTHING else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _excerpt(said: str, at: int) -> str:
    """Return what is said from a little before the place where it parts."""
    begin = max(0, at - 20) if len(said) > SHOWN else 0
    end = begin + SHOWN
    return f"{'…' if begin else ''}{said[begin:end]}{'…' if end < len(said) else ''}"


def _plain(value: Any) -> Any:
    """Return a copy in which equal numbers are spelled alike."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _remove(value: Any, steps: list[str]) -> None:
    """Take what *steps* lead to out of *value*; an item of a list leaves null in its place."""
    step, *deeper = steps
    for key in _keys(value, step):
        if deeper:
            _remove(value[key], deeper)
        elif isinstance(value, list):
            value[key] = None
        else:
            del value[key]


def _keys(value: Any, step: str) -> list[Any]:
    if isinstance(value, dict):
        return list(value) if step == "*" else [step] * (step in value)
    if isinstance(value, list):
        every = list(range(len(value)))
        return every if step == "*" else [index for index in every if str(index) == step]
    return []
