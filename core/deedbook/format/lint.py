"""Lint a JSON Schema from outside: every keyword known, every reference local, every limit kept.

The lint reads draft 2020-12 and refuses everything that a validator would ignore silently: a misspelt keyword, an
unknown format, a ``$ref`` that leaves the document, a keyword with a value of the wrong type.
`deedbook.format.schema.foreign` compiles what it accepts.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

import attrs

from deedbook.contract.pointers import join_pointer

if TYPE_CHECKING:
    import jsonschema_rs

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
MAX_LEVELS: Final = 16
MAX_NODES: Final = 5_000
MAX_PATTERNS: Final = 200
PATTERN_BYTES: Final = 1024 * 1024

FORMATS: Final = frozenset(
    {
        "date", "date-time", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6",
        "uri", "uri-reference", "uri-template", "iri", "iri-reference", "uuid", "json-pointer", "relative-json-pointer",
        "regex",
    }
)  # fmt: skip
"""The formats of draft 2020-12, all of which are asserted."""

TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})

_LONGEST: Final = 80

Path: TypeAlias = tuple[str | int, ...]


@attrs.frozen
class Violation:
    """A violation in a value: *path* is like ``$.steps[1].id``, *pointer* the same as RFC 6901."""

    path: str
    message: str
    pointer: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def violation(path: Iterable[str | int], message: str) -> Violation:
    """Return the `Violation` at *path*, given as keys and indices from the root."""
    steps = tuple(path)
    shown = "".join(map(_step, steps))
    return Violation(f"${shown}", message, join_pointer(*steps))


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if len(step) > _LONGEST:  # the beginning of a name that is a secret could not be masked any more
        return f"[a name of {len(step)} characters]"
    return f".{step}" if step.replace("-", "_").replace("$", "_").isidentifier() else f"[{step!r}]"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the one of *names* that *name* probably means; empty if none is near."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(names), n=1, cutoff=0.6)), "")


def suggest(name: str, names: Iterable[str]) -> str:
    """Return ``; did you mean "…"?`` with the nearest of *names*, or an empty text."""
    near = nearest(name, names)
    return f'; did you mean "{near}"?' if near else ""


# --- keywords ---------------------------------------------------------------------------------------------------------


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_name_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    return isinstance(value, str) or (_is_name_list(value) and bool(value))


def _is_anchor(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z_][-A-Za-z0-9._]*", value))


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and "#" not in value.removesuffix("#")


@attrs.frozen
class Shape:
    """The required form of a keyword's value, as text and as a test, and the schemas inside it."""

    words: str
    fits: Callable[[Any], bool]
    inside: Callable[[Any], Iterable[tuple[Path, Any]]] = lambda _value: ()


_NAMED: Final = Shape(
    "an object of schemas", lambda v: isinstance(v, dict), lambda v: [((k,), s) for k, s in v.items()]
)
_ONE: Final = Shape("a schema", _is_schema, lambda value: [((), value)])
_LIST: Final = Shape(
    "a list of at least one schema",
    lambda value: isinstance(value, list) and bool(value),
    lambda value: [((index,), schema) for index, schema in enumerate(value)],
)
_STRING: Final = Shape("a string", lambda value: isinstance(value, str))
_BOOLEAN: Final = Shape("true or false", lambda value: isinstance(value, bool))
_COUNT: Final = Shape("a whole number from 0", _is_count)
_NUMBER: Final = Shape("a number", _is_number)
_ANYTHING: Final = Shape("any value", lambda _value: True)

KEYWORDS: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        **dict.fromkeys(("$defs", "properties", "patternProperties", "dependentSchemas"), _NAMED),
        **dict.fromkeys(
            ("items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"), _ONE
        ),
        **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "contentSchema"), _ONE),
        **dict.fromkeys(("prefixItems", "allOf", "anyOf", "oneOf"), _LIST),
        **dict.fromkeys(("$schema", "$ref", "$dynamicRef", "$comment"), _STRING),
        **dict.fromkeys(("$anchor", "$dynamicAnchor"), Shape("a name of letters, digits, _ - .", _is_anchor)),
        "$id": Shape("a URI without fragment", _is_id),
        **dict.fromkeys(("title", "description", "format", "pattern", "contentEncoding", "contentMediaType"), _STRING),
        **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), _BOOLEAN),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _COUNT),
        **dict.fromkeys(("minProperties", "maxProperties"), _COUNT),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
        **dict.fromkeys(("const", "default"), _ANYTHING),
        "multipleOf": Shape("a number above 0", lambda value: _is_number(value) and value > 0),
        "type": Shape("a type, or a list of different types", _is_type),
        "enum": Shape("a list", lambda value: isinstance(value, list)),
        "examples": Shape("a list", lambda value: isinstance(value, list)),
        "required": Shape("a list of different names", _is_name_list),
        "dependentRequired": Shape(
            "an object of name lists", lambda value: isinstance(value, dict) and all(map(_is_name_list, value.values()))
        ),
    }
)
"""Every supported keyword; ``$vocabulary`` is not, since a schema here is for values, not for schemas."""

_OLD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "definitions": "use $defs",
        "dependencies": "use dependentRequired or dependentSchemas",
        "additionalItems": "use prefixItems with items",
        "$recursiveRef": "use $dynamicRef",
        "$recursiveAnchor": "use $dynamicAnchor",
        "id": "use $id",
        "nullable": 'use "type": ["…", "null"]',
    }
)


# --- the walk ---------------------------------------------------------------------------------------------------------


def problems(schema: Any) -> Iterator[Violation]:
    """Yield every fault of *schema*, a JSON value; without faults it may be compiled."""
    if _count(schema) > MAX_NODES:
        yield violation((), f"more than {MAX_NODES} nodes")
        return
    seen = dict(_schemas(schema, ()))
    patterns = 0
    for path, part in seen.items():
        if len(path) and _levels(path, seen) > MAX_LEVELS:
            yield violation(path, f"nested more than {MAX_LEVELS} schemas deep")
            return
        if not _is_schema(part):
            yield violation(path, "is no schema; expected an object, true or false")
        elif isinstance(part, dict):
            patterns += _patterns(part)
            yield from _keywords(part, path)
    if patterns > MAX_PATTERNS:
        yield violation((), f"{patterns} patterns; at most {MAX_PATTERNS} are accepted")
    yield from _references(seen)


def _patterns(part: Mapping[str, Any]) -> int:
    named = part.get("patternProperties")
    return ("pattern" in part) + (len(named) if isinstance(named, dict) else 0)


def _count(value: Any) -> int:
    nodes, level = 0, [[value]]
    while level and nodes <= MAX_NODES:
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
        nodes += len(level)
        level = [item for item in level if isinstance(item, dict | list)]
    return nodes


def _schemas(schema: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, schema
    if isinstance(schema, dict):
        for keyword, value in schema.items():
            shape = KEYWORDS.get(keyword)
            if shape and shape.fits(value):
                for step, inner in shape.inside(value):
                    yield from _schemas(inner, (*path, keyword, *step))


def _levels(path: Path, seen: Mapping[Path, Any]) -> int:
    return sum(path[:length] in seen for length in range(len(path)))


def _keywords(schema: Mapping[str, Any], path: Path) -> Iterator[Violation]:
    for keyword, value in schema.items():
        shape = KEYWORDS.get(keyword)
        if shape is None:
            hint = f"; {_OLD[keyword]}" if keyword in _OLD else suggest(keyword, KEYWORDS)
            yield violation((*path, keyword), f'unknown keyword "{keyword[:80]}"{hint}')
        elif not shape.fits(value):
            yield violation((*path, keyword), f"expected {shape.words}")
        elif keyword in _CHECKS:
            yield from (violation((*path, keyword), why) for why in _CHECKS[keyword](value, schema, path))


# --- single keywords --------------------------------------------------------------------------------------------------


def _check_dialect(value: str, _schema: Mapping[str, Any], _path: Path) -> Iterator[str]:
    if value.removesuffix("#") != DIALECT:
        yield f'"{value[:200]}" is another dialect; expected "{DIALECT}"'


def _check_id(_value: str, _schema: Mapping[str, Any], path: Path) -> Iterator[str]:
    if path:
        yield "only the root of a document may have an $id; refer to parts by $ref #/$defs/…"


def _check_type(value: Any, _schema: Mapping[str, Any], _path: Path) -> Iterator[str]:
    for name in [value] if isinstance(value, str) else value:
        if name not in TYPES:
            yield f'unknown type "{name[:80]}"{suggest(name, TYPES)}'


def _check_format(value: str, schema: Mapping[str, Any], _path: Path) -> Iterator[str]:
    if value not in FORMATS:
        yield f'unknown format "{value[:80]}"{suggest(value, FORMATS)}'
    elif "string" not in schema.get("type", ()):
        yield 'needs "type": "string" beside it: a format says nothing about values of other types'


def _check_pattern(value: str, _schema: Mapping[str, Any], _path: Path) -> Iterator[str]:
    import jsonschema_rs

    try:
        jsonschema_rs.Draft202012Validator({"pattern": value}, pattern_options=pattern_options())
    except jsonschema_rs.ValidationError:
        yield f'pattern "{value[:80]}" is no regular expression that runs in linear time (no look-around, no \\1)'


def _check_patterns(value: Mapping[str, Any], schema: Mapping[str, Any], path: Path) -> Iterator[str]:
    for pattern in value:
        yield from _check_pattern(pattern, schema, path)


_CHECKS: Final[Mapping[str, Callable[[Any, Mapping[str, Any], Path], Iterator[str]]]] = MappingProxyType(
    {
        "$schema": _check_dialect,
        "$id": _check_id,
        "type": _check_type,
        "format": _check_format,
        "pattern": _check_pattern,
        "patternProperties": _check_patterns,
    }
)


def pattern_options() -> "jsonschema_rs.RegexOptions":
    """Return the options of the pattern engine: linear time, at most 1 MiB for each compiled pattern."""
    import jsonschema_rs

    return jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES)


# --- references -------------------------------------------------------------------------------------------------------


def _references(seen: Mapping[Path, Any]) -> Iterator[Violation]:
    """Yield references that leave the document, lead nowhere, or lead to a place that is not a schema."""
    parts = [(path, part) for path, part in seen.items() if isinstance(part, dict)]
    anchors: dict[str, Path] = {}
    for path, part in parts:
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = part.get(keyword)
            if isinstance(name, str) and anchors.setdefault(name, path) != path:
                yield violation((*path, keyword), f'anchor "{name[:80]}" stands twice in the document')
    places = {join_pointer(*path) for path in seen}
    for path, part in parts:
        for keyword in ("$ref", "$dynamicRef"):
            target = part.get(keyword)
            if isinstance(target, str):
                yield from (violation((*path, keyword), why) for why in _astray(target, anchors, places))


def _astray(target: str, anchors: Mapping[str, Path], places: set[str]) -> Iterator[str]:
    if not target.startswith("#"):
        yield f'"{target[:200]}" leads out of the document; only references that begin with # are followed'
        return
    fragment = unquote(target[1:])
    if fragment.startswith("/") or not fragment:
        if fragment not in places:
            yield f'"{target[:200]}" leads to no schema{suggest(fragment, places)}'
    elif fragment not in anchors:
        yield f'"{target[:200]}" names no anchor{suggest(fragment, anchors)}'
