"""Front matter, read strictly: YAML that is JSON with comments, between two lines ``---``.

Skills may come from anyone, so the parser's events are checked before anything is built: no anchor, alias, tag, merge
key, directive or second document, at most 64 KiB, 16 levels and 5,000 nodes; an alias bomb costs nothing. The text
after the front matter has at most 512 KiB.
"""

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

import attrs
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from deedbook import Failed, Json
from deedbook.contract.hidden import find_hidden, unseen

MAX_BYTES: Final = 64 * 1024
"""How long the front matter may be, in bytes."""
MAX_BODY: Final = 512 * 1024
"""How long the text after the front matter may be, in bytes."""
MAX_FILE: Final = MAX_BYTES + MAX_BODY
MAX_DEPTH: Final = 16
MAX_NODES: Final = 5_000

_FENCE: Final = "---"
_EXACT: Final = 2**53
# Controls, and characters that end a line for some YAML readers only: one would see a key where another sees text.
_UNCLEAR: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


Place: TypeAlias = tuple[int, int]
"""A line and a column, from 1."""


@attrs.frozen
class Front:
    """The front matter of the file *path*: its *values*, and the *places* (line and column from 1) of their keys."""

    path: str
    values: Mapping[str, Json]
    places: Mapping[str, Place]

    def wrong(self, key: str, why: str) -> Failed:
        """Return the failure that says what is wrong with *key*, and where."""
        return failure(self.path, self.places.get(key, 1), f"{key}: {why}")


def failure(path: str, place: Place | int, why: str) -> Failed:
    """Return a `Failed` with ``SOURCE_INVALID`` that names file, line and column; a line alone begins at its first."""
    line, column = (place, 1) if isinstance(place, int) else place
    return Failed("SOURCE_INVALID", f"{path}:{line}:{column}: {why}", source=path)


def read(raw: bytes, path: str, *, fenced: bool = True) -> tuple[Front, str]:
    """Return the front matter of *raw*, and the text after it.

    Without *fenced*, a file that does not begin with ``---`` is front matter as a whole. Raises `Failed`.
    """
    text = _text(raw, path)
    lines = text.split("\n")
    if lines and lines[0].rstrip() == _FENCE:
        end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
        if end is None:
            raise failure(path, 1, "the front matter has no end; close it with a line ---")
        # An empty line stands for the fence, so that lines count from the top of the file.
        return _front("\n".join(["", *lines[1:end]]), path), _body("\n".join(lines[end + 1 :]), path, end + 2)
    if fenced:
        raise failure(path, 1, "no front matter; begin the file with a line ---, then name: and description:")
    return _front(text, path), ""


def _body(text: str, path: str, line: int) -> str:
    if len(text.encode()) > MAX_BODY:
        why = f"the text has more than {MAX_BODY} bytes; move reference material into files beside it"
        raise failure(path, line, why)
    return text


def _text(raw: bytes, path: str) -> str:
    if len(raw) > MAX_FILE:
        raise failure(path, 1, f"more than {MAX_FILE} bytes; move reference material into files beside it")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise failure(path, raw.count(b"\n", 0, problem.start) + 1, "not UTF-8 text") from None
    if (found := next(find_hidden(text), None)) and found.char != "\ufeff":
        raise failure(path, (found.line, found.column), unseen(found))
    if odd := _UNCLEAR.search(text):
        raise failure(path, text.count("\n", 0, odd.start()) + 1, _named(odd[0]))
    return text


def _named(character: str) -> str:
    if character == "\ufeff":
        return "a byte order mark (U+FEFF); save the file as UTF-8 without it"
    return f"the character U+{ord(character):04X}; leave it out"


def _front(text: str, path: str) -> Front:
    if len(text.encode()) > MAX_BYTES:
        raise failure(path, 1, f"the front matter has more than {MAX_BYTES} bytes; move what is long into the text")
    try:
        places = _check(text, path)
        values = YAML(typ="safe").load(text)
    except MarkedYAMLError as problem:
        mark = problem.problem_mark
        place = (mark.line + 1, mark.column + 1) if mark else 1
        raise failure(path, place, f"not YAML: {problem.problem or problem.context}") from None
    except (YAMLError, ValueError, OverflowError, RecursionError) as problem:
        raise failure(path, 1, f"not YAML: {str(problem).splitlines()[0] if str(problem) else 'unreadable'}") from None
    if not isinstance(values, dict) or not values:
        raise failure(path, 1, "the front matter is not a mapping (key: value)")
    for key, value in values.items():
        if odd := next(_odd({key: value}), None):
            raise failure(path, places.get(str(key), 1), odd)
    return Front(path, values, places)


# --- before anything is built -----------------------------------------------------------------------------------------


def _check(text: str, path: str) -> dict[str, Place]:
    """Refuse what is not JSON with comments; return the places of the top-level keys."""
    places: dict[str, Place] = {}
    depth = nodes = documents = 0
    awaits_key = True
    for event in YAML(typ="safe").parse(text):
        place = (event.start_mark.line + 1, event.start_mark.column + 1)
        documents += isinstance(event, DocumentStartEvent)
        if why := _refusal(event, documents):
            raise failure(path, place, why)
        if isinstance(event, MappingEndEvent | SequenceEndEvent):
            depth -= 1
        elif isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent):
            nodes += 1
            if depth == 1:
                if awaits_key and isinstance(event, ScalarEvent):
                    places.setdefault(event.value, place)
                awaits_key = not awaits_key
            depth += not isinstance(event, ScalarEvent)
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            raise failure(path, place, f"more than {MAX_DEPTH} levels or {MAX_NODES} values")
    return places


def _refusal(event: Any, documents: int) -> str | None:
    if isinstance(event, AliasEvent):
        return f"an alias (*{event.anchor}); write the value out"
    if getattr(event, "anchor", None) is not None:
        return f"an anchor (&{event.anchor}); write the value out where it is needed"
    if isinstance(event, DocumentStartEvent):
        return "a % directive; leave it out" if event.version or event.tags else _second(documents)
    if getattr(event, "tag", None) is not None:
        return f"a tag ({event.tag}); front matter holds JSON types only"
    if isinstance(event, ScalarEvent) and event.value == "<<" and event.implicit[0]:
        return "a merge key (<<); write the keys out"
    return None


def _second(documents: int) -> str | None:
    return "a second document; the front matter is one" if documents > 1 else None


# --- and after --------------------------------------------------------------------------------------------------------


def _odd(value: object) -> Iterator[str]:
    """Yield why *value* is not exactly JSON; it is at most 16 levels deep."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _odd(key) if isinstance(key, str) else (f"key {key!r} is not a string; quote it",)
            yield from _odd(item)
    elif isinstance(value, list):
        for item in value:
            yield from _odd(item)
    elif isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            yield "a lone surrogate; write the character itself"
        yield from map(unseen, islice(find_hidden(value), 1))
    elif isinstance(value, int | float):
        if not math.isfinite(value) or abs(value) >= _EXACT:
            yield f"{str(value)[:40]} is beyond what JSON carries exactly; quote it"
    elif value is not None:
        yield f"a {type(value).__name__} is not a JSON type; quote {str(value)[:40]!r}"
