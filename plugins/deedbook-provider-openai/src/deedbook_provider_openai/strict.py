"""Schemas in the form that ``strict: true`` demands: every property required, no others, a subset of the keywords."""

from collections.abc import Mapping
from typing import Any, Final

_KEPT: Final = frozenset({"type", "description", "enum", "const", "title"})
_DROPPED: Final = frozenset({"$schema", "$id", "$comment", "default", "examples", "minLength", "maxLength"})
"""What a strict schema may not hold, and what is checked afterwards or says nothing about validity."""
_COUNTS: Final = frozenset({"minItems", "maxItems"})


def strictly(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return *schema* narrowed to the strict form; ``None`` if it cannot be said there.

    What fits the result fits *schema*, but for the lengths of texts: a property that may be left out has to be given.
    """
    if schema.get("type") == "object":
        return _object(schema)
    if schema.get("type") == "array":
        return _array(schema)
    known = _KEPT | _DROPPED
    asserts = isinstance(schema.get("type"), str) or schema.keys() & {"enum", "const"}
    return _plain(schema) if asserts and schema.keys() <= known else None


def _object(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    known = _KEPT | _DROPPED | {"properties", "required", "additionalProperties"}
    properties = schema.get("properties", {})
    if schema.keys() - known or not properties or set(schema.get("required", ())) - set(properties):
        return None
    made = {name: strictly(part) if isinstance(part, Mapping) else None for name, part in properties.items()}
    if None in made.values():
        return None
    return {**_plain(schema), "properties": made, "required": list(made), "additionalProperties": False}


def _array(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    items = schema.get("items")
    made = strictly(items) if isinstance(items, Mapping) else None
    if made is None or schema.keys() - _KEPT - _DROPPED - _COUNTS - {"items"}:
        return None
    counts = {name: schema[name] for name in sorted(_COUNTS & schema.keys())}
    return {**_plain(schema), **counts, "items": made}


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name in _KEPT}
