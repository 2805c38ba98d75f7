"""Characters that a person does not see in a text and a model reads: one rule for all texts that reach a model.

Hidden are control characters (also the escapes of terminals), zero-width and bidirectional characters, tags, soft
hyphens, fillers, annotations and variation selectors, except where a script or an emoji needs them: a joiner in an
emoji or between letters of a script that joins, a mark of direction in a line with letters from right to left, a
selector behind a character that has variants, and the three flags that are written with tags.
"""

import json
import re
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any, Final
from unicodedata import bidirectional, category, name

import attrs

_SUSPECT: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Whatever Unicode calls a control, a format character that is not seen, or ignorable by default."""
_FLAG: Final = re.compile("\U0001f3f4\U000e0067\U000e0062(?:{})\U000e007f".format("|".join(
    "".join(chr(0xE0000 + ord(each)) for each in region) for region in ("eng", "sct", "wls"))))  # fmt: skip
"""The flags of England, Scotland and Wales, the only ones with tags that are recommended for interchange."""
_CONTROLS: Final = MappingProxyType({"\0": "NULL", "\x08": "BACKSPACE", "\x1b": "ESCAPE", "\x7f": "DELETE"})
_DIRECTIONS: Final = frozenset("\u061c\u200e\u200f")
_JOINERS: Final = frozenset("\u200c\u200d")
_JOINING: Final = ((0x0600, 0x0DFF), (0x1000, 0x109F), (0x1780, 0x18AF), (0xA840, 0xA87F), (0xFB50, 0xFDFF),
                   (0xFE70, 0xFEFC), (0x11000, 0x119FF), (0x10D00, 0x10D3F), (0x1E900, 0x1E95F))  # fmt: skip
"""Scripts whose letters join: Arabic and its neighbours, the scripts of India and South-East Asia, Mongolian, Adlam."""
_IDEOGRAPHS: Final = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_PICTURES: Final = (
    (0x203C, 0x203C), (0x2049, 0x2049), (0x2100, 0x2BFF), (0x3030, 0x303D), (0x3297, 0x3299),
    (0x1F000, 0x1FAFF), (0x23, 0x23), (0x2A, 0x2A), (0x30, 0x39), (0xA9, 0xA9), (0xAE, 0xAE),
)  # fmt: skip
"""Characters that have a form as text and one as an emoji."""


@attrs.frozen
class Hidden:
    """A hidden character of a text at *index*, on *line* and *column* (from 1)."""

    index: int
    line: int
    column: int
    char: str

    def __str__(self) -> str:
        other = "a control character" if category(self.char) == "Cc" else ""
        known = name(self.char, "") or _CONTROLS.get(self.char, other)
        return f"U+{ord(self.char):04X}{f' ({known})' if known else ''}"


def unseen(found: Hidden) -> str:
    """Return what is wrong with a hidden character, and what to do."""
    return f"the character {found}, which a person does not see; leave it out, or write it as an escape if it is needed"


def find_hidden(text: str) -> Iterator[Hidden]:
    """Yield the hidden characters of *text*, in linear time."""
    line, start, flag = 1, 0, 0
    done = 0
    for found in _SUSPECT.finditer(text):
        at = found.start()
        line += text.count("\n", done, at)
        start = text.rfind("\n", done, at) + 1 or start
        done = at
        if at < flag:
            continue
        if found[0] == "\U000e0067" and at and (whole := _FLAG.match(text, at - 1)):
            flag = whole.end()
        elif not _is_needed(text, at):
            yield Hidden(at, line, at - start + 1, found[0])


def show_hidden(text: str) -> str:
    r"""Return *text* with every hidden character written as ``\u{..}``, so that people and models see the same."""
    return _replace(text, lambda char: f"\\u{{{ord(char):x}}}")


def show_hidden_json(text: str) -> str:
    """Return *text*, which is JSON, with every hidden character as an escape of JSON: its value is the same."""
    return _replace(text, lambda char: json.dumps(char)[1:-1])


def _replace(text: str, write: Callable[[str], str]) -> str:
    parts, done = [], 0
    for found in find_hidden(text):
        parts += [text[done : found.index], write(found.char)]
        done = found.index + 1
    return "".join((*parts, text[done:])) if parts else text


def hidden_in(value: Any, pointer: str = "") -> Iterator[tuple[str, Hidden]]:
    """Yield the hidden characters of all texts and names in JSON, each with the JSON pointer to its text.

    Patterns of a schema are passed over: they may have to name such a character.
    """
    if isinstance(value, str):
        yield from ((pointer, each) for each in find_hidden(value))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from ((pointer, each) for each in find_hidden(key))
            if key not in ("pattern", "patternProperties"):
                yield from hidden_in(item, f"{pointer}/{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from hidden_in(item, f"{pointer}/{index}")


# --- where a character is needed --------------------------------------------------------------------------------------


def _is_needed(text: str, at: int) -> bool:
    char, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if char in _JOINERS:
        if _among(before, _JOINING) and _among(after, _JOINING):
            return True
        return char == "\u200d" and _ends_picture(text, at) and _among(after, _PICTURES) and not after.isascii()
    if char in _DIRECTIONS:
        return before not in _DIRECTIONS and _has_right_to_left(text, at)
    if char in "\ufe0e\ufe0f":
        return _among(before, _PICTURES)
    if "\ufe00" <= char <= "\ufe02" or "\U000e0100" <= char <= "\U000e01ef":
        return _among(before, _IDEOGRAPHS)
    return "\u180b" <= char <= "\u180f" and "\u1820" <= before <= "\u18aa"


def _ends_picture(text: str, at: int) -> bool:
    before = text[at - 2 : at] if at > 1 else text[:at]
    return _among(before[-1:], _PICTURES) or (before[-1:] == "\ufe0f" and _among(before[:1], _PICTURES))


def _among(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return bool(char) and any(low <= ord(char) <= high for low, high in ranges)


_NEAR: Final = 64


def _has_right_to_left(text: str, at: int) -> bool:
    """Return whether a letter from right to left stands near, on the same line; near, so that time stays linear."""
    before = text[max(0, at - _NEAR) : at].rpartition("\n")[2]
    after = text[at + 1 : at + _NEAR].partition("\n")[0]
    return any(bidirectional(each) in ("R", "AL") for each in (*before, *after) if each not in _DIRECTIONS)
