"""JSON for people, as HTML: sealed values are marked and never shown, long ones are cut, and both are said."""

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from deedbook.contract import Object
from deedbook.format.canonical import SEALED_KEY

from .markup import prose, tag, text

EXCISED_KEY: Final = "$excised"
"""The one member of a payload whose bytes were taken out of the line."""
MOST: Final = 16_384
"""Characters that are shown of one value."""
TOTAL: Final = 24 * 1024 * 1024
"""Characters that are shown of all values of a page; of each later one there is only the beginning."""
BRIEF: Final = 400
DEEPEST: Final = 80
CUT: Final = '<span class="note"> … cut here; the ledger holds the whole</span>'


class Payloads:
    """Shows the values of one page; *erased* are the digests whose bytes were deleted."""

    def __init__(self, erased: Collection[str], *, total: int = TOTAL) -> None:
        self._erased = erased
        self._left = total

    def shown(self, value: Any) -> str:
        """Return a value: text as it was written, anything else as indented JSON."""
        if isinstance(value, str):
            return tag("pre", self._written(value), dir="auto")
        return tag("pre", self._cut(_spelled(value, self._mark, 0)), class_="json")

    def _written(self, value: str) -> str:
        limit = self._limit()
        self._left -= min(len(value), limit)
        return prose(value[:limit]) + (CUT if len(value) > limit else "")

    def _cut(self, pieces: Iterator[str]) -> str:
        """Join *pieces*, which are HTML, until there are too many."""
        limit, size, parts = self._limit(), 0, []
        for piece in pieces:
            parts.append(piece)
            size += len(piece)
            if size > limit:
                parts.append(CUT)
                break
        self._left -= size
        return "".join(parts)

    def _limit(self) -> int:
        return MOST if self._left > 0 else BRIEF

    def _mark(self, value: dict[str, Any]) -> str:
        if EXCISED_KEY in value:
            return tag("mark", "taken out of the line; only its hash is left", class_="erased")
        gone = isinstance(value[SEALED_KEY], str) and value[SEALED_KEY] in self._erased
        word = "erased" if gone else "sealed"
        return tag("mark", f"{word}, {text(value.get('size'))} bytes", class_=word, title=str(value[SEALED_KEY]))


def is_excised(payload: Object) -> bool:
    """Say whether the bytes of a payload were taken out."""
    return payload.keys() == {EXCISED_KEY}


def is_sealed(value: Any) -> bool:
    """Say whether *value* stands for a sealed one, as a reader sees it who believes nothing."""
    return isinstance(value, dict) and SEALED_KEY in value


def _spelled(value: Any, mark: Callable[[dict[str, Any]], str], depth: int) -> Iterator[str]:
    """Yield a value's spelling in pieces, each HTML by itself."""
    if is_sealed(value) or (isinstance(value, dict) and is_excised(value)):
        yield mark(value)
    elif depth > DEEPEST:
        yield "…"
    elif isinstance(value, dict) and value:
        for index, (key, item) in enumerate(value.items()):
            yield f"{',' if index else '{'}\n{_indent(depth + 1)}<b>{_scalar(key)}</b>: "
            yield from _spelled(item, mark, depth + 1)
        yield f"\n{_indent(depth)}}}"
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield f"{',' if index else '['}\n{_indent(depth + 1)}"
            yield from _spelled(item, mark, depth + 1)
        yield f"\n{_indent(depth)}]"
    else:
        yield _scalar(value)


def _scalar(value: Any) -> str:
    return text(json.dumps(value, ensure_ascii=False, default=str)[: MOST + 1])


def _indent(depth: int) -> str:
    return "  " * depth
