"""Parse YAML and Markdown front matter strictly into plain values, with the source position of every value.

The YAML here is the part of YAML 1.2 that is JSON with comments: one document of mappings, sequences, strings, numbers,
booleans and null. What other readers interpret differently is refused instead of guessed: anchors, aliases, tags, merge
keys, directives, dates, ``.nan``, ``0777``, keys that are no strings, keys that appear twice. The limits are 64 KiB, 16
levels and 5,000 nodes. All faults of a file are reported together, each with ``file:line:column``.

The events of ruamel's parser (in C where available) are read once and never composed, so an alias costs nothing and a
file is refused where it exceeds a limit, not after its expansion.
"""

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import attrs
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

try:
    from ruamel.yaml.cyaml import CParser  # type: ignore[attr-defined] # the stub does not export it
except ImportError:  # no libyaml for this interpreter; the pure parser gives the same events, ten times slower
    CParser = None

from deedbook.contract import Json
from deedbook.contract.hidden import find_hidden, unseen
from deedbook.contract.pointers import find_value, join_pointer
from deedbook.format.canonical import MAX_INTEGER, encode
from deedbook.format.errors import DomainError, IntakeError, SourceError, fault, raise_all
from deedbook.format.files import Folder

from .sources import MAX_BYTES, read

MAX_DEPTH: Final = 16
MAX_NODES: Final = 5_000
_MOST_HIDDEN: Final = 20
"""How many hidden characters of one file are reported."""

_FENCE: Final = "---"
_NODES: Final = (ScalarEvent, MappingStartEvent, SequenceStartEvent, AliasEvent)
_WORDS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_LONGEST: Final = len(f"-{MAX_INTEGER}")
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
# Plain scalars that some YAML readers parse as a number or a date, and others as a string or a different number.
_UNCLEAR: Final = re.compile(
    r"""= | [-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)
    | [-+]?0[xob][0-9a-fA-F_]+
    | [-+]?[0-9_]+(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?
    | [-+]?\.[0-9_]+(?:[eE][-+]?[0-9]+)?
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?""",
    re.VERBOSE | re.DOTALL,
)
_WORD: Final = re.compile(r"[A-Za-z0-9_]+|[^\s]")
# Characters that YAML does not allow, or that end a line for YAML 1.1 readers and not for 1.2 readers (or the reverse).
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


@attrs.frozen
class Position:
    """A position in a text: *line* and *column* from 1, columns in characters."""

    line: int
    column: int


Located: TypeAlias = Mapping[str, tuple[Position, Position]]
"""By JSON pointer: the position of the key (in a sequence: of the item) and that of the value."""


@attrs.frozen
class Document:
    """One parsed file: its *value*, its *path* as messages show it, and the SHA-256 of its bytes.

    Treat *value* as immutable. It begins at *start*; other positions are computed from *text* at the first lookup.
    """

    path: str
    value: Json
    digest: str
    start: Position = Position(1, 1)
    text: str = attrs.field(default="", repr=False)

    def place(self, at: str = "", *, key: bool = False) -> str:
        """Return ``file:line:column`` of the value at the JSON pointer *at*, or of its *key*.

        If no value is there, return the place of the nearest parent.
        """
        found = self._position(at, key=key)
        return f"{self.path}:{found.line}:{found.column}"

    def line(self, at: str = "") -> str:
        """Return ``file:line`` of the key, or of the item of a sequence, at the JSON pointer *at*."""
        return f"{self.path}:{self._position(at, key=True).line}"

    def within(self, at: str, offset: int) -> str:
        """Return ``file:line:column`` of the word that begins *offset* characters into the string at *at*.

        The word is found by counting its earlier occurrences, since a string has many notations (quoted, folded,
        block). Where the notation differs from the value, return the place of the string.
        """
        value = find_value(self.value, at, "")
        start = self._position(at, key=False)
        word = _WORD.match(value, offset)
        if not word:
            return self.place(at)
        lines = self.text.split("\n")
        here = sum(len(line) + 1 for line in lines[: start.line - 1]) + start.column - 1
        found = self.text.find(word[0], here)
        for _ in range(value.count(word[0], 0, offset)):
            found = self.text.find(word[0], found + len(word[0])) if found >= 0 else found
        if found < 0:
            return self.place(at)
        above = self.text.count("\n", 0, found)
        return f"{self.path}:{above + 1}:{found - self.text.rfind(chr(10), 0, found)}"

    def _position(self, at: str, *, key: bool) -> Position:
        if not at:
            return self.start
        found = self._locations.get(at)
        if found:
            return found[0] if key else found[1]
        return self._position(at.rpartition("/")[0], key=False)

    @functools.cached_property
    def _locations(self) -> Located:
        return dict(_locate(_events(self.text)))


def parse_yaml(raw: bytes, path: str) -> Document:
    """Return the document in *raw*; *path* is for messages. Raises `SourceError` with every fault."""
    text = read_text(raw, path)
    builder = _Builder(path, text)
    values = builder.documents()
    if not values:
        raise SourceError(_invalid("the file is empty", path, Position(1, 1)))
    return Document(path, values[0], hashlib.sha256(raw).hexdigest(), builder.start, text)


def load_yaml(folder: Folder, path: str) -> Document:
    """Read the YAML file at *path* beneath *folder*. Raises `SourceError` with every fault of the file."""
    return parse_yaml(read(folder, path), path)


def parse_front_matter(raw: bytes, path: str, limit: int = MAX_BYTES) -> tuple[Document, str]:
    """Return the front matter of Markdown *raw* (a mapping, empty if there is none) and the text after it.

    The front matter is YAML between a first line ``---`` and the next line ``---``. The whole file has at most *limit*
    bytes. Raises `SourceError`.
    """
    text = read_text(raw, path, limit)
    digest = hashlib.sha256(raw).hexdigest()
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != _FENCE:
        return Document(path, {}, digest), text
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise SourceError(_invalid("the front matter has no end; close it with a line ---", path, Position(1, 1)))
    # An empty line replaces the fence, so that line numbers count from the top of the file.
    yaml = "\n" + "".join(lines[1:end])
    value = next(iter(_Builder(path, yaml).documents()), {})
    if not isinstance(value, dict):
        raise SourceError(_invalid("the front matter is not a mapping (key: value)", path, Position(2, 1)))
    return Document(path, value, digest, text=yaml), "".join(lines[end + 1 :])


def flow_style_places(document: Document) -> Iterator[str]:
    """Yield the place of each mapping and sequence that is written with brackets."""
    for event in _events(document.text):
        if isinstance(event, MappingStartEvent | SequenceStartEvent) and event.flow_style:
            found = _position(event.start_mark)
            yield f"{document.path}:{found.line}:{found.column}"


# --- from events to values --------------------------------------------------------------------------------------------


class _Builder:
    """Builds the value of one document and collects its faults."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.lines = text.split("\n")
        self.events = _events(text)
        self.faults: list[DomainError] = []
        self.nodes = 0
        self.start = Position(1, 1)

    def documents(self) -> list[Json]:
        """Return the value of the only document, nothing if there is none, or raise `SourceError` with every fault."""
        values: list[Json] = []
        try:
            values += [self._node(event, 0) for event in self._contents()]
        except YAMLError as problem:
            self._report(_reason(problem, self.lines), _mark(problem))
        except (ValueError, RecursionError) as problem:
            self._report(str(problem) or "nested too deeply", None)
        raise_all(SourceError, self.faults)
        return values

    def _contents(self) -> Iterator[Any]:
        documents = 0
        for event in self.events:
            if type(event) is DocumentStartEvent:
                documents += 1
                if event.version or event.tags:
                    self._report("a % directive; workspace files are plain YAML 1.2, leave it out", event)
                if documents > 1:
                    self._halt("a second document; one file holds one", event)
            elif isinstance(event, _NODES):
                self.start = _position(event.start_mark)
                yield event

    def _node(self, event: Any, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self._halt(f"more than {MAX_NODES} values; split the file", event)
        kind = type(event)
        if kind is AliasEvent:
            self._report(f"an alias (*{event.anchor}); write the value out", event)
            return None
        if event.anchor is not None or event.tag is not None:
            self._report_properties(event)
        if kind is ScalarEvent:
            return self._scalar(event)
        if depth == MAX_DEPTH:
            self._halt(f"more than {MAX_DEPTH} levels", event)
        return self._mapping(depth) if kind is MappingStartEvent else self._sequence(depth)

    def _report_properties(self, event: Any) -> None:
        if event.anchor is not None:
            self._report(f"an anchor (&{event.anchor}); write the value out where it is needed", event)
        if event.tag is not None:
            self._report(f"a tag ({event.tag!r}); workspace files hold JSON types only", event)

    def _sequence(self, depth: int) -> list[Any]:
        made = []
        for event in self.events:
            if type(event) is SequenceEndEvent:
                break
            made.append(self._node(event, depth + 1))
        return made

    def _mapping(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for event in self.events:
            if type(event) is MappingEndEvent:
                break
            key = self._key(event, depth)
            if key in made:
                self._report(f"key {key!r} appears twice", event)
            made[key] = self._node(next(self.events), depth + 1)
        return made

    def _key(self, event: Any, depth: int) -> str:
        key = self._node(event, depth + 1)
        if type(event) is ScalarEvent:
            if type(key) is not str:
                self._report(f"key {event.value!r} is not a string; quote it", event)
            return str(event.value)
        self._report("a key that is not a string", event)
        return ""

    def _scalar(self, event: Any) -> Json:
        text: str = event.value
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            self._report("a lone surrogate; write the character itself", event)
        if not event.implicit[0]:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if text == "<<":
            self._report("a merge key (<<); write the keys out, or quote it", event)
        return text if text[0] not in "+-.0123456789=" else self._number(text, event)

    def _number(self, text: str, event: Any) -> Json:
        if not _NUMBER.fullmatch(text):
            if _UNCLEAR.fullmatch(text):
                self._report(f"{text[:40]} means different things to different readers; quote it", event)
            return text
        if len(text) > _LONGEST and _INTEGER.fullmatch(text):
            return self._unrecordable(text, event)
        number = int(text) if _INTEGER.fullmatch(text) else float(text)
        try:
            encode(number)
        except IntakeError:
            return self._unrecordable(text, event)
        return number

    def _unrecordable(self, text: str, event: Any) -> str:
        self._report(f"{text[:40]} is beyond what JSON carries exactly; quote it", event)
        return text

    def _report(self, message: str, at: Any) -> None:
        mark = getattr(at, "start_mark", at)
        self.faults.append(_invalid(message, self.path, _position(mark) if mark else Position(1, 1)))

    def _halt(self, message: str, event: Any) -> None:
        self._report(message, event)
        raise SourceError(*self.faults)


def _events(text: str) -> Iterator[Any]:
    return iter(CParser(text).get_event, None) if CParser else YAML(typ="safe", pure=True).parse(text)


def _locate(events: Iterator[Any]) -> Iterator[tuple[str, tuple[Position, Position]]]:
    for event in events:
        if isinstance(event, _NODES):
            yield from _locate_node(events, event, event, "")


def _locate_node(
    events: Iterator[Any], key: Any, event: Any, at: str
) -> Iterator[tuple[str, tuple[Position, Position]]]:
    yield at, (_position(key.start_mark), _position(event.start_mark))
    if type(event) is MappingStartEvent:
        for inner in events:
            if type(inner) is MappingEndEvent:
                return
            yield from _locate_node(events, inner, next(events), at + join_pointer(inner.value))
    elif type(event) is SequenceStartEvent:
        for index, inner in enumerate(events):
            if type(inner) is SequenceEndEvent:
                return
            yield from _locate_node(events, inner, inner, f"{at}/{index}")


# --- text and faults --------------------------------------------------------------------------------------------------


def read_text(raw: bytes, path: str, limit: int = MAX_BYTES) -> str:
    """Return a file's text; raises `SourceError` for bytes that are not UTF-8, and for characters that hide."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        before = raw[: problem.start].decode("utf-8")
        raise SourceError(_invalid("not UTF-8 text", path, _end(before))) from None
    if len(raw) > limit:
        raise SourceError(_invalid(f"{len(raw)} bytes; at most {limit} are read", path, Position(1, 1)))
    odd = _UNPRINTABLE.search(text)
    if odd:
        raise SourceError(_invalid(_odd(odd[0]), path, _end(text[: odd.start()])))
    hidden = islice(find_hidden(text), _MOST_HIDDEN)
    raise_all(SourceError, [_invalid(unseen(each), path, Position(each.line, each.column)) for each in hidden])
    return text


def _odd(character: str) -> str:
    if character == "\ufeff":
        return "a byte order mark (U+FEFF); save the file as UTF-8 without it"
    return f"the character U+{ord(character):04X}; write it as an escape in double quotes"


def _end(text: str) -> Position:
    lines = re.split(r"\r\n|\r|\n", text)
    return Position(len(lines), len(lines[-1]) + 1)


_MISLED: Final = (
    "mapping values are not allowed", "could not find expected ':'", "did not find expected", "expected ',' or",
    "expected <block end>",
)  # fmt: skip
"""Parser messages whose place is after the real mistake."""
_NEAR: Final = "; the mistake may be on the line before; a text with a colon needs quotes"


def _reason(problem: YAMLError, lines: Sequence[str]) -> str:
    if isinstance(problem, MarkedYAMLError) and problem.problem:
        if _is_tab(problem, lines):
            return "not YAML: a tab; YAML is indented with spaces"
        said = f"not YAML: {problem.problem}" + (f" {problem.context}" if problem.context else "")
        return said + (_NEAR if any(each in problem.problem for each in _MISLED) else "")
    return f"not YAML: {str(problem).splitlines()[0]}"


def _is_tab(problem: MarkedYAMLError, lines: Sequence[str]) -> bool:
    """Return whether the parser stopped at a tab."""
    mark = problem.problem_mark
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    return bool(mark) and line[mark.column : mark.column + 1] == "\t"


def _mark(problem: YAMLError) -> StringMark | None:
    return problem.problem_mark if isinstance(problem, MarkedYAMLError) else None


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def _invalid(message: str, path: str, at: Position) -> DomainError:
    return fault("SOURCE_INVALID", message, place=f"{path}:{at.line}:{at.column}")
