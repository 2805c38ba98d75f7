"""The assignment of a phase: what the prompt says about the objective, the outputs, the rules and the limits; pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook import Object
from deedbook.contract.pointers import follow_reference

from .contract import TASK, UNIT, Contract, Output, fill, find_placeholders
from .definition import Definition

_DEEPEST: Final = 7
_LONGEST_PATTERN: Final = 24
_NUMBERED: Final = re.compile(r"([A-Za-z]+-)\[0-9\]\{3\}")
_LONGEST_ENUM: Final = 12


def describe_assignment(definition: Definition, contract: Contract, values: Mapping[str, str]) -> str:
    """Return the assignment as Markdown; *values* replace placeholders, raises `ValueError` without one."""
    return "\n".join(_lines(definition, contract, values)) + "\n"


def _lines(definition: Definition, contract: Contract, values: Mapping[str, str]) -> Iterator[str]:
    unit = f", unit {values[UNIT]}" if UNIT in values and contract.takes_units else ""
    yield f"# Phase {contract.phase} of task {values.get(TASK, '')}{unit}"
    yield ""
    yield contract.objective
    yield ""
    yield "Outputs, each a whole file:"
    for output in contract.outputs:
        yield from _describe_output(output, definition.schemas, values)
    rules = [rule for rule in contract.rules if rule.command is None]
    if rules:
        yield "Rules that are checked:"
        yield from (f"- {rule.message}" for rule in rules)
    if contract.forbidden_uses or contract.forbidden_writes:
        yield "You may not:"
        yield from (f"- write {_show(path, values)}" for path in contract.forbidden_writes)
        yield from (f"- use {name}" for name in contract.forbidden_uses)
    needs = " and ".join(
        [name for name, is_needed in (("reason", contract.rollback.reason_required),
                                      ("missing", contract.rollback.missing_required)) if is_needed]
    )  # fmt: skip
    yield f"If you cannot go on, do not guess: answer with blocked{f' ({needs} filled in)' if needs else ''}."


def _describe_output(output: Output, schemas: Mapping[str, Object], values: Mapping[str, str]) -> Iterator[str]:
    many = f", at least {output.at_least} such files" if output.many else ""
    yield f"- {_show(output.path, values)}{many}"
    if output.schema is not None:
        what = "front matter" if output.path.endswith(".md") else "value"
        yield f"  {what} {outline(schemas[output.schema])}"


def _show(path: str, values: Mapping[str, str]) -> str:
    return fill(path, values) if all(name in values for name in find_placeholders(path)) else path


def outline(schema: Object) -> str:
    """Return the shape of the values of *schema* in short, such as ``{id: text, tags?: [text]}``."""
    return _outline(schema, schema, 0)


def _outline(schema: Any, root: Object, depth: int) -> str:
    if isinstance(schema, Mapping) and "$ref" in schema:
        schema = follow_reference(root, schema["$ref"])
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "any"
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        shown = [str(each) for each in schema["enum"][:_LONGEST_ENUM]]
        return "|".join([*shown, *(["…"] if len(schema["enum"]) > _LONGEST_ENUM else [])])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return "|".join(dict.fromkeys(_outline(each, root, depth + 1) for each in schema[key]))
    return _outline_type(schema, root, depth)


def _outline_type(schema: Mapping[str, Any], root: Object, depth: int) -> str:
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        needed = schema.get("required", ())
        members = (
            f"{name}{'' if name in needed else '?'}: {_outline(inner, root, depth + 1)}"
            for name, inner in schema.get("properties", {}).items()
        )
        return f"{{{', '.join([*members, *_outline_rest(schema, root, depth)])}}}"
    if kind == "array":
        return f"[{_outline(schema.get('items'), root, depth + 1)}]"
    if kind == "string":
        return _outline_text(str(schema.get("pattern", "")))
    named = {"string": "text", "null": "null"}
    if isinstance(kind, list):
        return "|".join(named.get(str(each), str(each)) for each in kind)
    return named.get(str(kind), str(kind or "any"))


def _outline_rest(schema: Mapping[str, Any], root: Object, depth: int) -> Iterator[str]:
    """Yield the shape of members of any name."""
    if isinstance(schema.get("additionalProperties"), Mapping):
        names = schema.get("propertyNames", {})
        name = _outline_text(str(names.get("pattern", ""))) if isinstance(names, Mapping) else "text"
        yield f"{name}: {_outline(schema['additionalProperties'], root, depth + 1)}, …"


def _outline_text(pattern: str) -> str:
    """Return the first number of numbered ids, such as ``AC-001``, a short pattern as it is, otherwise ``text``."""
    inner = pattern.removeprefix("^").removesuffix("$")
    numbered = _NUMBERED.fullmatch(inner)
    if numbered:
        return f"{numbered[1]}001"
    return f"/{inner}/" if 0 < len(inner) <= _LONGEST_PATTERN else "text"
