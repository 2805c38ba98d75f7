"""JSON for people, as HTML: sealed values are marked and never shown, long ones are cut and marked."""

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from deedbook.contract import Object
from deedbook.format.canonical import SEALED_KEY

from .markup import escape_lines, escape_text, render_tag

EXCISED_KEY: Final = "$excised"
"""The only member of an excised payload."""
MAX_VALUE: Final = 16_384
"""The largest number of characters shown of one value."""
MAX_TOTAL: Final = 24 * 1024 * 1024
"""The largest number of characters shown of all values of a page; later values are shortened."""
BRIEF: Final = 400
MAX_DEPTH: Final = 80
CUT: Final = '<span class="note"> … cut here; the ledger holds the whole</span>'


class PayloadRenderer:
    """Renders the values of one page; *erased* are the erased digests."""

    def __init__(self, erased: Collection[str], *, total: int = MAX_TOTAL) -> None:
        self._erased = erased
        self._remaining = total

    def render(self, value: Any) -> str:
        """Return a value: text unchanged, anything else as indented JSON."""
        if isinstance(value, str):
            return render_tag("pre", self._render_text(value), dir="auto")
        return render_tag("pre", self._cut(_render_json(value, self._mark, 0)), class_="json")

    def _render_text(self, value: str) -> str:
        limit = self._limit()
        self._remaining -= min(len(value), limit)
        return escape_lines(value[:limit]) + (CUT if len(value) > limit else "")

    def _cut(self, pieces: Iterator[str]) -> str:
        """Join *pieces*, which are HTML, up to the limit."""
        limit, size, parts = self._limit(), 0, []
        for piece in pieces:
            parts.append(piece)
            size += len(piece)
            if size > limit:
                parts.append(CUT)
                break
        self._remaining -= size
        return "".join(parts)

    def _limit(self) -> int:
        return MAX_VALUE if self._remaining > 0 else BRIEF

    def _mark(self, value: dict[str, Any]) -> str:
        if EXCISED_KEY in value:
            return render_tag("mark", "taken out of the line; only its hash is left", class_="erased")
        is_erased = isinstance(value[SEALED_KEY], str) and value[SEALED_KEY] in self._erased
        word = "erased" if is_erased else "sealed"
        return render_tag(
            "mark", f"{word}, {escape_text(value.get('size'))} bytes", class_=word, title=str(value[SEALED_KEY])
        )


def is_excised(payload: Object) -> bool:
    """Return whether a payload was excised."""
    return payload.keys() == {EXCISED_KEY}


def is_sealed(value: Any) -> bool:
    """Return whether *value* stands for a sealed one, without trust in the ledger."""
    return isinstance(value, dict) and SEALED_KEY in value


def _render_json(value: Any, mark: Callable[[dict[str, Any]], str], depth: int) -> Iterator[str]:
    """Yield a value in pieces, each valid HTML by itself."""
    if is_sealed(value) or (isinstance(value, dict) and is_excised(value)):
        yield mark(value)
    elif depth > MAX_DEPTH:
        yield "…"
    elif isinstance(value, dict) and value:
        for index, (key, item) in enumerate(value.items()):
            yield f"{',' if index else '{'}\n{_indent(depth + 1)}<b>{_render_scalar(key)}</b>: "
            yield from _render_json(item, mark, depth + 1)
        yield f"\n{_indent(depth)}}}"
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield f"{',' if index else '['}\n{_indent(depth + 1)}"
            yield from _render_json(item, mark, depth + 1)
        yield f"\n{_indent(depth)}]"
    else:
        yield _render_scalar(value)


def _render_scalar(value: Any) -> str:
    return escape_text(json.dumps(value, ensure_ascii=False, default=str)[: MAX_VALUE + 1])


def _indent(depth: int) -> str:
    return "  " * depth
