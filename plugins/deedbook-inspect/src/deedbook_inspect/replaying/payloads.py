"""JSON for people, in lines: sealed values are marked and never shown, long ones are cut and marked."""

import json
from collections.abc import Collection
from typing import Any, Final, TypeGuard

import attrs

from deedbook.contract import Object
from deedbook.format.canonical import SEALED_KEY
from deedbook.format.terminal import plain, short

EXCISED_KEY: Final = "$excised"
"""The only member of an excised payload."""
MAX_VALUE: Final = 16_384
"""The largest number of characters shown of one value."""
MAX_TOTAL: Final = 24 * 1024 * 1024
"""The largest number of characters shown of all values of a page; later values are shortened."""
BRIEF: Final = 400
"""The largest number of characters shown of each value after that."""
MAX_DEPTH: Final = 80
_CONTAINERS: Final = (dict, list)
_encode: Final = json.JSONEncoder(ensure_ascii=False, default=str).encode


@attrs.frozen
class Mark:
    """A word that stands in the place of a value, or beside an event. *style* is a class of the style sheet."""

    text: str
    style: str = ""
    title: str = ""


@attrs.define
class JsonLine:
    """A line of indented JSON: a *key*, a mark in the place of a value, and *text*, which includes a comma.

    It is not frozen: a page has hundreds of thousands of them, and a frozen one takes twice as long to make.
    """

    indent: str = ""
    key: str = ""
    text: str = ""
    mark: Mark | None = None

    def __len__(self) -> int:
        marked = len(self.mark.text) if self.mark else 0
        return len(self.indent) + len(self.key) + len(self.text) + marked


@attrs.frozen
class Payload:
    """A value as it is shown: its *lines*, and whether it *is_cut* after them."""

    lines: list[str] | list[JsonLine]
    is_text: bool
    is_cut: bool


class PayloadCutter:
    """Cuts the values of one page; *erased* are the erased digests."""

    def __init__(self, erased: Collection[str], *, total: int = MAX_TOTAL) -> None:
        self._erased = erased
        self._remaining = total

    def cut(self, value: Any) -> Payload:
        """Return a value: text unchanged, anything else as indented JSON."""
        limit = MAX_VALUE if self._remaining > 0 else BRIEF
        return self._cut_text(value, limit) if isinstance(value, str) else self._cut_json(value, limit)

    def _cut_text(self, value: str, limit: int) -> Payload:
        lines = [plain(line.removesuffix("\r").expandtabs(8)) for line in value[:limit].split("\n")]
        self._remaining -= sum(map(len, lines)) + len(lines)
        return Payload(lines, is_text=True, is_cut=len(value) > limit)

    def _cut_json(self, value: Any, limit: int) -> Payload:
        lines: list[JsonLine] = []
        left = self._write(lines, limit, value)
        self._remaining -= sum(map(len, lines)) + len(lines)
        return Payload(lines, is_text=False, is_cut=left < 0)

    def _write(self, lines: list[JsonLine], left: int, value: Any, key: str = "", end: str = "", depth: int = 0) -> int:
        """Add the lines of *value*, of at most *left* characters; return how many are left, or -1 if it is cut."""
        indent = "  " * depth
        if depth > MAX_DEPTH and not is_marked(value):
            return _add(lines, left, JsonLine(indent, key, f"…{end}"))
        if not isinstance(value, _CONTAINERS) or not value:
            return _add(lines, left, JsonLine(indent, key, f"{_spell(value)}{end}"))
        if is_marked(value):
            return _add(lines, left, JsonLine(indent, key, end, self._build_mark(value)))
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        left = _add(lines, left, JsonLine(indent, key, opening))
        rows = value.items() if isinstance(value, dict) else (("", item) for item in value)
        for number, (name, item) in enumerate(rows, 1):
            if left < 0:
                return left
            spelled = _spell(name) if isinstance(value, dict) else ""
            left = self._write(lines, left, item, spelled, "," if number < len(value) else "", depth + 1)
        return left if left < 0 else _add(lines, left, JsonLine(indent, "", f"{closing}{end}"))

    def _build_mark(self, value: dict[str, Any]) -> Mark:
        if EXCISED_KEY in value:
            return Mark("taken out of the line; only its hash is left", "erased")
        is_erased = isinstance(value[SEALED_KEY], str) and value[SEALED_KEY] in self._erased
        word = "erased" if is_erased else "sealed"
        return Mark(f"{word}, {short(str(value.get('size')), 40)} bytes", word, short(str(value[SEALED_KEY])))


def _add(lines: list[JsonLine], left: int, line: JsonLine) -> int:
    """Add *line*, or its beginning if it has more than *left* characters; return how many are left, or -1."""
    size = len(line)
    if size > left:
        line.key, line.text = line.key[:left], line.text[:left]
    lines.append(line)
    return max(0, left - size - 1) if size <= left else -1


def is_excised(payload: Object) -> bool:
    """Return whether a payload was excised."""
    return payload.keys() == {EXCISED_KEY}


def is_marked(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a mark stands in the place of *value*."""
    return isinstance(value, dict) and (SEALED_KEY in value or is_excised(value))


def is_sealed(value: Any) -> bool:
    """Return whether *value* stands for a sealed one, without trust in the ledger."""
    return isinstance(value, dict) and SEALED_KEY in value


def _spell(value: Any) -> str:
    """Return a key, or a value without members, as JSON; the beginning of a long one."""
    return plain(_encode(value)[: MAX_VALUE + 1])
