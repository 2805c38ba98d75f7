"""The Cedar schema of a workspace: one action for each ability, with the types of its arguments. Pure.

A value without a counterpart in Cedar (a number with a fraction, or a value of several types) is left out: no policy
can look at it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from deedbook.contract import Object, PolicyTarget

_MAX_DEPTH: Final = 8
_STRING: Final[Object] = {"type": "String"}
_TYPES: Final[Mapping[str, Object]] = {
    "string": _STRING,
    "integer": {"type": "Long"},
    "boolean": {"type": "Boolean"},
}


def build_schema(abilities: Sequence[PolicyTarget]) -> dict[str, Any]:
    """Return the schema for calls of *abilities*, in Cedar's JSON form."""
    return {
        "": {
            "entityTypes": {
                "Role": {},
                "Principal": {
                    "memberOfTypes": ["Role"],
                    "shape": _record({"via": _STRING, "on_behalf_of": _STRING}, {"via"}),
                },
                "Ability": {
                    "shape": _record(
                        {"kind": _STRING, "effects": _STRING, "tags": _set(_STRING), "scopes": _set(_STRING)},
                        {"kind", "effects", "tags", "scopes"},
                    )
                },
            },
            "actions": {each.id: {"appliesTo": _applies_to(each)} for each in abilities},
        }
    }


def _applies_to(target: PolicyTarget) -> dict[str, Any]:
    context = {
        "args": _arguments(target),
        "session": _STRING,
        "mode": _STRING,
        "now": {"type": "Extension", "name": "datetime"},
        "role": _STRING,
        "skill": _STRING,
    }
    return {
        "principalTypes": ["Principal"],
        "resourceTypes": ["Ability"],
        "context": _record(context, {"args", "session", "mode", "now"}),
    }


def _arguments(target: PolicyTarget) -> dict[str, Any]:
    """Return the record of an ability's arguments: what all of its schemas require is required."""
    attributes: dict[str, Any] = {}
    for schema in target.takes:
        made = _type_of({"type": "object", **schema}, schema, 0)
        for name, each in (made or {}).get("attributes", {}).items():
            known = attributes.setdefault(name, each)
            attributes[name] = {**known, "required": known["required"] or each["required"]}
    return {"type": "Record", "attributes": attributes}


def _type_of(schema: Any, root: Object, depth: int) -> dict[str, Any] | None:
    """Return the Cedar type of a JSON Schema; ``None`` where there is none."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    if isinstance(schema.get("$ref"), str):
        return _type_of(_resolve(schema["$ref"], root), root, depth + 1)
    kind = _kind_of(schema)
    if kind == "object" and "properties" in schema:
        made = {name: _type_of(each, root, depth + 1) for name, each in schema["properties"].items()}
        known = {name: each for name, each in made.items() if each is not None}
        return _record(known, frozenset(schema.get("required", ())))
    if kind == "array":
        of = _type_of(schema.get("items"), root, depth + 1)
        return None if of is None else _set(of)
    return dict(_TYPES[kind]) if kind in _TYPES else None


def _kind_of(schema: Object) -> str:
    """Return the one JSON type that a schema allows beside null; empty if there are several, or it is unknown."""
    kinds = schema.get("type")
    if kinds is None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        return "string" if values and all(isinstance(each, str) for each in values) else ""
    found = [kinds] if isinstance(kinds, str) else [each for each in kinds if each != "null"]
    return found[0] if len(found) == 1 else ""


def _resolve(reference: str, root: Object) -> Any:
    """Return what a reference within the schema names; ``None`` for any other."""
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else [""]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _record(attributes: Mapping[str, Object], required: frozenset[str] | set[str]) -> dict[str, Any]:
    made = {name: {**each, "required": name in required} for name, each in attributes.items()}
    return {"type": "Record", "attributes": made}


def _set(of: Object) -> dict[str, Any]:
    return {"type": "Set", "element": dict(of)}
