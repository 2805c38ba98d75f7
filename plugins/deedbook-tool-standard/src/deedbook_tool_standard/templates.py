"""Placeholders in settings: ``{name}`` or ``{/pointer}`` stands for an argument of the call.

``{name?}`` is an argument that may be absent, ``{name...}`` an array whose items are elements of their own. Two braces,
``{{`` and ``}}``, stand for one. Nothing else is special: there is no shell, no nesting and no default.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from deedbook.contract import Failed, Json, Object
from deedbook.contract.pointers import follow_reference, split_pointer

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_INNER = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*|(?:/(?:[^~/{}?.]|~[01])+)+)(\?)?(\.\.\.)?")
_HOW = "write {name}, {name?} for an optional argument, {name...} for an array; {{ and }} are plain braces"
SCALARS = frozenset({"string", "integer", "number", "boolean"})


@dataclass(frozen=True)
class Placeholder:
    """One placeholder: the *steps* into the arguments, how it is *written*, and what it may stand for."""

    written: str
    steps: tuple[str, ...]
    optional: bool = False
    spread: bool = False

    def value(self, args: Object) -> Json:
        """Return the argument, ``None`` where it is absent (or null, which is the same here)."""
        found: Any = args
        for step in self.steps:
            found = found.get(step) if isinstance(found, dict) else None
        return found  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Template:
    """Text with placeholders: *parts* are literal text and placeholders, in order."""

    parts: tuple[str | Placeholder, ...]

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """Return the placeholders, in order."""
        return tuple(part for part in self.parts if isinstance(part, Placeholder))

    @property
    def prefix(self) -> str:
        """Return the literal text before the first placeholder."""
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""

    @property
    def whole(self) -> Placeholder | None:
        """Return the one placeholder that is all of the text, if it is so."""
        alone = self.parts[0] if len(self.parts) == 1 else None
        return alone if isinstance(alone, Placeholder) else None

    def values(self, args: Object) -> dict[Placeholder, Json] | None:
        """Return what each placeholder stands for; ``None`` where an optional one stands for nothing."""
        found = {each: each.value(args) for each in self.placeholders}
        for each, value in found.items():
            if value is None and not each.optional:
                raise Failed("ARGUMENT_REFUSED", f"{each.written}: there is no such argument")
        return None if None in found.values() else found

    def fill(self, args: Object) -> str | None:
        """Return the text for these arguments; ``None`` where an optional placeholder stands for nothing."""
        found = self.values(args)
        if found is None:
            return None
        return "".join(part if isinstance(part, str) else text_of(part, found[part]) for part in self.parts)


def parse(text: str) -> Template:
    """Read a template; raises `ValueError` in words for its author."""
    parts: list[str | Placeholder] = []
    end = 0
    for token in _TOKEN.finditer(text):
        _literal(parts, text[end : token.start()])
        end = token.end()
        inner = token.group(1)
        if inner is not None:
            parts.append(_placeholder(inner))
        elif len(token.group()) == 2:
            _literal(parts, token.group()[0])
        else:
            raise ValueError(f"{token.group()!r} stands alone in {text[:80]!r}; {_HOW}")
    _literal(parts, text[end:])
    return Template(tuple(parts))


def _literal(parts: list[str | Placeholder], text: str) -> None:
    """Add literal text, to that before it if there is some: two literals never stand side by side."""
    if not text:
        return
    before = parts[-1] if parts else None
    if isinstance(before, str):
        parts[-1] = before + text
    else:
        parts.append(text)


def _placeholder(inner: str) -> Placeholder:
    found = _INNER.fullmatch(inner)
    if not found:
        raise ValueError(f"{{{inner[:80]}}} is no placeholder; {_HOW}")
    name = found[1]
    steps = split_pointer(name) if name[0] == "/" else [name]
    return Placeholder(f"{{{inner}}}", tuple(steps), bool(found[2]), bool(found[3]))


def text_of(placeholder: Placeholder, value: Json) -> str:
    """Return a single value as text, exactly; raises `Failed` where it is none, or holds a NUL."""
    if isinstance(value, dict | list) or value is None:
        raise Failed("ARGUMENT_REFUSED", f"{placeholder.written}: a single value is needed, not {_type(value)}")
    text = value if isinstance(value, str) else json.dumps(value)
    if "\0" in text:
        raise Failed("ARGUMENT_REFUSED", f"{placeholder.written}: a NUL character is not taken")
    return text


def _type(value: Json) -> str:
    return "nothing" if value is None else "an object" if isinstance(value, dict) else "an array"


# --- what schema_in says of a placeholder -----------------------------------------------------------------------------


def misfits(template: Template, schema: Object, *, single: bool = True) -> Iterator[str]:
    """Yield what keeps the placeholders from being filled by every call that *schema* accepts.

    *single*: a value becomes text, so that its type has to be that of a single value.
    """
    for each in template.placeholders:
        node, required = _find_schema(schema, each)
        if isinstance(node, str):
            yield node
            continue
        if not required and not each.optional:
            how = f"{{{each.written[1:-1].removesuffix('...')}?{'...' if each.spread else ''}}}"
            yield f"{each.written}: schema_in does not require it; add it to required, or write {how}"
        if single:
            yield from _type_misfits(each, node, schema)
        if each.spread and template.whole is None:
            yield f"{each.written}: an array has to be an element of its own, without other text"


def _find_schema(schema: Object, placeholder: Placeholder) -> tuple[Any, bool]:
    """Return the schema of an argument and whether it is always there; or, in words, that it is not declared."""
    node: Any = resolve_reference(schema, schema)
    required = True
    for step in placeholder.steps:
        inside = node.get("properties", {}) if isinstance(node, dict) else {}
        if step not in inside:
            near = get_close_matches(step, list(inside), n=1)
            hint = f'; did you mean "{near[0]}"?' if near else f"; it has {', '.join(sorted(inside)) or 'none'}"
            return f"{placeholder.written}: schema_in declares no property {step!r}{hint}", False
        required = required and step in node.get("required", ())
        node = resolve_reference(inside[step], schema)
    return node, required


def resolve_reference(node: Any, schema: Object) -> Any:
    """Return what a schema's local ``$ref`` leads to."""
    for _ in range(16):
        if not isinstance(node, dict) or "$ref" not in node:
            return node
        node = follow_reference(schema, node["$ref"])
    return node


def types(node: Any) -> frozenset[str]:
    """Return the JSON types that a schema admits, as far as ``type``, ``const`` and ``enum`` say; empty: any."""
    if not isinstance(node, dict):
        return frozenset()
    said = node.get("type")
    if said is not None:
        return frozenset([said] if isinstance(said, str) else said)
    values = [node["const"]] if "const" in node else node.get("enum", [])
    return frozenset(map(_json_type, values))


def _json_type(value: Json) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names[type(value)]


def _type_misfits(placeholder: Placeholder, node: Any, schema: Object) -> Iterator[str]:
    found, written = types(node) - ({"null"} if placeholder.optional else set()), placeholder.written
    if not found:
        yield f"{written}: schema_in says no type of it; add type: string, integer, number, boolean or array"
    elif placeholder.spread:
        items = resolve_reference(node.get("items"), schema)
        if found != {"array"}:
            yield f"{written}: only an array can be several elements; its type is {' or '.join(sorted(found))}"
        elif not types(items) or not types(items) <= SCALARS:
            yield f"{written}: its items have to be single values; add items: {{type: string}}"
    elif "array" in found:
        yield f"{written}: an array is written {{{written[1:-1]}...}}, as an element of its own"
    elif not found <= SCALARS:
        yield f"{written}: a single value is needed; its type is {' or '.join(sorted(found))}"
