"""Schemas as vendors take them: in the strict form (every property required, no others), or with fewer keywords."""

from collections.abc import Mapping
from typing import Any, Final

_KEPT: Final = frozenset({"type", "description", "enum", "const", "title"})
_DROPPED: Final = frozenset({"$schema", "$id", "$comment", "default", "examples", "minLength", "maxLength"})
"""What a strict schema may not hold, and what is checked afterwards or says nothing about validity."""
_COUNTS: Final = frozenset({"minItems", "maxItems"})


def strictly(schema: Mapping[str, Any], *, counts: bool = True) -> dict[str, Any] | None:
    """Return *schema* narrowed to the strict form; ``None`` if it cannot be said there.

    What fits the result fits *schema*, but for the lengths of texts (and of lists, unless *counts*): a property that
    may be left out has to be given.
    """
    if schema.get("type") == "object":
        return _object(schema, counts=counts)
    if schema.get("type") == "array":
        return _array(schema, counts=counts)
    known = _KEPT | _DROPPED
    asserts = isinstance(schema.get("type"), str) or schema.keys() & {"enum", "const"}
    return _plain(schema) if asserts and schema.keys() <= known else None


def _object(schema: Mapping[str, Any], *, counts: bool) -> dict[str, Any] | None:
    known = _KEPT | _DROPPED | {"properties", "required", "additionalProperties"}
    properties = schema.get("properties", {})
    if schema.keys() - known or not properties or set(schema.get("required", ())) - set(properties):
        return None
    made = {
        name: strictly(part, counts=counts) if isinstance(part, Mapping) else None for name, part in properties.items()
    }
    if None in made.values():
        return None
    return {**_plain(schema), "properties": made, "required": list(made), "additionalProperties": False}


def _array(schema: Mapping[str, Any], *, counts: bool) -> dict[str, Any] | None:
    items = schema.get("items")
    made = strictly(items, counts=counts) if isinstance(items, Mapping) else None
    if made is None or schema.keys() - _KEPT - _DROPPED - _COUNTS - {"items"}:
        return None
    kept = {name: schema[name] for name in sorted(_COUNTS & schema.keys())} if counts else {}
    return {**_plain(schema), **kept, "items": made}


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name in _KEPT}


def reduce_schema(schema: Mapping[str, Any], keywords: frozenset[str]) -> dict[str, Any]:
    """Return *schema* with only those *keywords*, at every depth; ``const`` becomes an ``enum`` of one value.

    What fits *schema* fits the result, which may take more: the kernel checks the answer by the whole schema.
    """
    told = {**schema, **({"enum": [schema["const"]]} if "const" in schema else {})}
    return {name: _reduce(name, value, keywords) for name, value in told.items() if name in keywords}


def _reduce(name: str, value: Any, keywords: frozenset[str]) -> Any:
    if name in ("properties", "$defs") and isinstance(value, Mapping):
        return {key: _part(part, keywords) for key, part in value.items()}
    if name in ("anyOf", "oneOf", "prefixItems") and isinstance(value, list):
        return [_part(part, keywords) for part in value]
    return _part(value, keywords) if name in ("items", "additionalProperties") else value


def _part(part: Any, keywords: frozenset[str]) -> Any:
    return reduce_schema(part, keywords) if isinstance(part, Mapping) else part
