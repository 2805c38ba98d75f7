"""What the conditions of a contract see: named values, each with the schema that a condition is compiled against; pure.

| name | value |
|---|---|
| ``inputs`` | the value of each input by name; a list where it is ``many`` |
| ``outputs`` | the value of each output by name; a list where it is ``many`` |
| ``checks`` | the result of each command by the rule's id, with ``_`` for ``-``; a list where it runs for each unit |
| ``task`` | the task, as in its ``META.yaml`` (``swe_task_v1``) |
| ``unit`` | the unit that the phase works on; ``null`` in a phase that works on none |

The value of a Markdown file is its front matter, that of JSON and YAML the whole document, that of a diff `DIFF`.
"""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object
from deedbook_policy_standard.signals import SignalLanguage

from .contract import EACH_UNIT, Contract, Input, Output
from .definition import TASK_SCHEMA, Definition

DIFF: Final[Object] = {
    "type": "object",
    "required": ["files", "added", "removed"],
    "properties": {
        "files": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "kind", "added", "removed"],
                "properties": {
                    "path": {"type": "string"},
                    "kind": {"type": "string"},
                    "added": {"type": "integer"},
                    "removed": {"type": "integer"},
                },
                "additionalProperties": False,
            },
        },
        "added": {"type": "integer"},
        "removed": {"type": "integer"},
    },
    "additionalProperties": False,
}
"""The schema of the value of a diff: the changed files, and how many lines are added and removed."""

_NOTHING: Final[Object] = {"type": "null"}
_DIFF_NAME: Final = "diff"
_UNTYPED: Final = "any"


def rule_variables(contract: Contract, schemas: Mapping[str, Object], unit: Object | None) -> dict[str, Object]:
    """Return the schema of each variable of the conditions of *contract*; *unit* is that of a unit, if it has one."""
    known = {**schemas, _DIFF_NAME: DIFF, _UNTYPED: {}}
    checks = {
        rule.check: (rule.command.schema, rule.command.each == EACH_UNIT)
        for rule in contract.rules
        if rule.command is not None
    }
    return {
        "inputs": _group({each.name: (_schema_of(each), each.many) for each in contract.inputs}, known),
        "outputs": _group({each.name: (_schema_of(each), each.many) for each in contract.outputs}, known),
        "checks": _group(checks, known),
        "task": known.get(TASK_SCHEMA, {}),
        "unit": _NOTHING if unit is None else unit,
    }


def build_language(definition: Definition, contract: Contract) -> SignalLanguage:
    """Return the language of the conditions of *contract*; raises `NoEngine`."""
    unit = definition.unit_schema() if definition.works_units(contract.phase) else None
    return SignalLanguage(rule_variables(contract, definition.schemas, unit))


def _schema_of(file: Input | Output) -> str:
    if file.schema is not None:
        return file.schema
    return _DIFF_NAME if file.path.endswith(".diff") else _UNTYPED


def _group(members: Mapping[str, tuple[str, bool]], schemas: Mapping[str, Object]) -> Object:
    """Return the schema of an object whose members have the named schemas, or are lists of values that have."""
    found = {name: schemas.get(name, {}) for name, _ in members.values()}
    properties = {key: _reference(name, many=many) for key, (name, many) in members.items()}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "$defs": {name: _rebase(schema, f"#/$defs/{name}") for name, schema in found.items()},
    }


def _reference(name: str, *, many: bool) -> Object:
    reference = {"$ref": f"#/$defs/{name}"}
    return {"type": "array", "items": reference} if many else reference


def _rebase(schema: Any, base: str) -> Any:
    """Return *schema* with its local references as they lead where it stands at *base* of another document."""
    if isinstance(schema, Mapping):
        return {
            key: f"{base}{value[1:]}" if key == "$ref" and isinstance(value, str) else _rebase(value, base)
            for key, value in schema.items()
        }
    return [_rebase(each, base) for each in schema] if isinstance(schema, list) else schema
