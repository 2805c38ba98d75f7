"""Generate values that a JSON Schema accepts: a few for each, the plainest first, found by trying.

Some schemas yield no value: a pattern, ``not`` or a condition may exclude every candidate. Each yielded value has been
validated against the schema itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from deedbook.contract.pointers import follow_reference
from deedbook.format.canonical import encode
from deedbook.format.errors import DeedbookError
from deedbook.format.schema import foreign

Schema: TypeAlias = Mapping[str, Any] | bool

TYPES: Final = ("string", "integer", "number", "boolean", "null", "object", "array")
_LEVELS: Final = 8
_MOST: Final = 24
_LONGEST: Final = 5_000
_TEXTS: Final = (
    "a", "", "x y", "A", "0", "ab", "a1", "A-1", "1.5", "/", "a/b", "../x", "-a", "é", "2026-01-02", "12:30:00Z",
    "2026-01-02T03:04:05Z", "a@example.com", "example.com", "https://example.com/a", "127.0.0.1", "::1", "P1D",
    "123e4567-e89b-12d3-a456-426614174000", "a" * 64, "0" * 64,
)  # fmt: skip


def unfold(schema: Any, root: Any = None, level: int = 0) -> Any:
    """Return *schema* with local references replaced by their targets; too deep ones accept everything."""
    root = schema if root is None else root
    if isinstance(schema, list):
        return [unfold(each, root, level) for each in schema]
    if not isinstance(schema, dict):
        return schema
    target = schema.get("$ref")
    if isinstance(target, str):
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        found = follow_reference(root, target) if level < _LEVELS else True
        found = unfold(found, root, level + 1)
        return merge_schemas(found, unfold(rest, root, level)) if isinstance(found, dict) else unfold(rest, root, level)
    data = ("const", "enum", "default", "examples")
    return {
        key: value if key in data else unfold(value, root, level) for key, value in schema.items() if key != "$defs"
    }


def merge_schemas(under: Schema, over: Schema) -> dict[str, Any]:
    """Return *under* overwritten by *over*, keyword by keyword; properties are merged by name."""
    first, second = (part if isinstance(part, Mapping) else {} for part in (under, over))
    inner = {
        part: {
            **first.get(part, {}),
            **{
                name: merge_schemas(first[part][name], schema) if name in first.get(part, {}) else schema
                for name, schema in second[part].items()
            },
        }
        for part in ("properties", "patternProperties")
        if part in second
    }
    return {**first, **second, **inner}


def instances(schema: Any) -> Iterator[Any]:
    """Yield at most a few distinct values that *schema*, unfolded, accepts; the plainest first."""
    try:
        check = foreign(schema, place="an overlay").valid if isinstance(schema, dict) else None
    except DeedbookError:
        return
    if schema is False:
        return
    seen: set[bytes] = set()
    for value in islice(_candidates(schema, 0), _MOST * 20):
        key = encode(value)
        if key not in seen and (check is None or check(value)):
            seen.add(key)
            yield value
            if len(seen) == _MOST:
                return


def _candidates(schema: Any, level: int) -> Iterator[Any]:
    """Yield values that *schema* may accept."""
    if not isinstance(schema, dict):
        yield from () if schema is False else ("a", 0, True, None, {}, [], 0.5)
        return
    if level > _LEVELS:
        return
    for word in ("anyOf", "oneOf"):
        if word in schema:
            rest = {key: value for key, value in schema.items() if key != word}
            for branch in schema[word]:
                yield from _candidates(merge_schemas(rest, branch) if isinstance(branch, dict) else rest, level + 1)
            return
    if "allOf" in schema:
        whole: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            needed = [*whole.get("required", ()), *(part.get("required", ()) if isinstance(part, dict) else ())]
            whole = merge_schemas(whole, part)
            whole |= {"required": list(dict.fromkeys(needed))} if needed else {}
        yield from _candidates(whole, level + 1)
        return
    if "const" in schema or "enum" in schema:
        yield from [schema["const"]] if "const" in schema else schema["enum"]
        return
    kinds = schema.get("type", TYPES)
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        yield from _of_type(kind, schema, level)


def _of_type(kind: str, schema: dict[str, Any], level: int) -> Iterable[Any]:
    match kind:
        case "string":
            return _texts(schema)
        case "integer" | "number":
            return _numbers(schema, whole=kind == "integer")
        case "boolean":
            return (True, False)
        case "null":
            return (None,)
        case "array":
            return _arrays(schema, level)
        case _:
            return _objects(schema, level)


def _texts(schema: dict[str, Any]) -> Iterator[str]:
    least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", _LONGEST))
    yield from (text for text in _TEXTS if least <= len(text) <= most)
    for length in dict.fromkeys((least, most, least + 1)):
        if 0 <= length <= min(most, _LONGEST):
            yield from (letter * length for letter in "a0A")
    pattern = schema.get("pattern", "")
    plain = pattern.removeprefix("^").removesuffix("$").replace("\\", "")
    yield from (plain, f"{plain}a", f"a{plain}")


def _numbers(schema: dict[str, Any], *, whole: bool) -> Iterator[int | float]:
    bounds = [schema[word] for word in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum") if word in schema]
    step = schema.get("multipleOf", 1)
    for bound in [*bounds, 0]:
        near = int(bound // step) * step if step else bound
        found = [bound, near, *(near + times * step for times in (1, -1, 2)), bound + 1, bound - 1]
        found += [] if whole else [bound + 0.5, bound - 0.5, near + step / 2]
        for value in found:
            if not whole or value == int(value):
                yield int(value) if value == int(value) else value


def _objects(schema: dict[str, Any], level: int) -> Iterator[dict[str, Any]]:
    """Yield the smallest object, then fuller ones."""
    inside = schema.get("properties", {})
    extra = schema.get("additionalProperties", True)
    made: dict[str, Any] = {}
    for name in schema.get("required", ()):
        for value in _plainest(inside.get(name, extra), level):
            made[name] = value
    yield made
    for name, part in inside.items():
        for value in _plainest(part, level):
            yield {**made, name: value}
    full = made | {name: value for name, part in inside.items() for value in _plainest(part, level)}
    yield full
    for value in _plainest(extra, level):
        for wanted in (int(schema.get("minProperties", 0)), len(made) + 1):
            missing = [f"x-{index}" for index in range(min(wanted, 100) - len(made))]
            yield {**made, **dict.fromkeys(missing, value)}


def _plainest(schema: Any, level: int) -> list[Any]:
    """Return one value of a part of a schema, or none."""
    if level > _LEVELS:
        return []
    try:
        check = foreign(schema, place="a part").valid if isinstance(schema, dict) else None
    except DeedbookError:
        return []
    found = (value for value in islice(_candidates(schema, level + 1), _MOST * 4) if check is None or check(value))
    return list(islice(found, 1))


def _arrays(schema: dict[str, Any], level: int) -> Iterator[list[Any]]:
    first = [value for part in schema.get("prefixItems", ()) for value in _plainest(part, level)]
    items = schema.get("items", True)
    least, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", 100))
    several = list(islice(_candidates(items, level + 1), _MOST)) if level < _LEVELS else []
    try:
        check = foreign(items, place="items").valid if isinstance(items, dict) else None
    except DeedbookError:
        return
    fitting = [value for value in several if check is None or check(value)]
    for length in dict.fromkeys((least, least + 1, min(most, 100), most + 1)):
        rest = max(length - len(first), 0)
        if rest and not fitting:
            continue
        yield [*first, *(fitting[index % len(fitting)] for index in range(rest))][: max(length, 0)]
        yield [*first, *([fitting[0]] * rest if rest else [])]
