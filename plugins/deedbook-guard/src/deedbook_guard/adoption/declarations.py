"""What a workspace has to declare for the tools of a program, and what it lacks; pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format.canonical import MAX_INTEGER
from deedbook.format.lint import KEYWORDS
from deedbook.format.schema import lint
from deedbook_guard.agent_tools import ToolDescription
from deedbook_guard.values import as_json

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED: Final = ("other", "model")
_SUMMARY: Final = 200
_IGNORED: Final = frozenset(
    {"title", "format", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$comment", "$id"}
)
"""Keywords of schemas that are left out. The framework reads formats in its own way: it takes a date without a zone."""

_HIGHEST: Final = ("maximum", "exclusiveMaximum")
_LOWEST: Final = ("minimum", "exclusiveMinimum")


@attrs.frozen
class Addition:
    """A member that the settings lack: *key* of the object at the path *parent*, and its *value*."""

    parent: tuple[str, ...]
    key: str
    value: Any


@attrs.frozen
class Conflict:
    """A member of the settings, at a path, which the program contradicts, and *why*."""

    path: tuple[str, ...]
    why: str


@attrs.define
class Adoption:
    """The *additions* to the settings of a workspace, what prevents them, and *notes* for a person."""

    additions: list[Addition] = attrs.field(factory=list)
    conflicts: list[Conflict] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)


def compare(settings: Object, program: str, tools: Iterable[ToolDescription]) -> Adoption:
    """Return what *settings* lack so that the tools of *program* are declared.

    What a person wrote is never changed. A tool without ``schema_in`` gets one. Another ``schema_in`` is a conflict,
    since the door would refuse arguments that the tool accepts, or the other way round.
    """
    made = Adoption()
    entries = dict(_entries(tools, made.notes))
    agents: Any = settings.get("agents", {})
    declared: Any = agents.get(program)
    path = ("agents", program)
    if declared is None:
        unknown = {} if settings.get("enforcement", "enforce") == "enforce" else {"unknown_tools": "allow"}
        entry = {"kind": "program", **unknown, "tools": entries}
        made.additions.append(_first_missing(settings, path, entry))
        return made
    if declared.get("kind") != "program":
        made.conflicts.append(Conflict(path, f"{program!r} is declared, and not with kind: program"))
        return made
    there = declared.get("tools", {})
    if not there and entries:
        made.additions.append(_first_missing(settings, (*path, "tools"), entries))
        return made
    for name, entry in entries.items():
        _compare_tool(there.get(name), (*path, "tools"), name, entry, made)
    made.notes += [f"{program}/{name} is declared, and the agent does not have it" for name in there.keys() - entries]
    return made


def hinted_effects(annotations: Mapping[str, Any]) -> str:
    """Return the effects of a tool by its own hints: ``read`` if it says that it only reads, otherwise ``write``."""
    only_reads = annotations.get("readOnlyHint") is True and annotations.get("destructiveHint") is not True
    return "read" if only_reads else "write"


def simplify_schema(schema: Any) -> Any:
    """Return a JSON Schema without annotations, formats, keywords that validators ignore, and bounds beyond 2^53-1.

    No number that intake admits reaches such a bound.
    """
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        shape = KEYWORDS.get(key)
        if shape is None or key in _IGNORED or _is_beyond_numbers(key, value):
            continue
        made[key] = value
        for inside, part in list(shape.inside(value)) if shape.fits(value) else ():
            made[key] = _replace(made[key], inside, simplify_schema(part))
    return made


def _is_beyond_numbers(key: str, value: Any) -> bool:
    """Return whether a keyword of a schema is a bound that every number in JSON keeps."""
    if type(value) not in (int, float):
        return False
    return (key in _HIGHEST and value > MAX_INTEGER) or (key in _LOWEST and value < -MAX_INTEGER)


def _entries(tools: Iterable[ToolDescription], notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the declaration of each tool; two agents may have tools of the same name."""
    for name, same in groupby(sorted(tools, key=attrgetter("name")), key=attrgetter("name")):
        found = [_entry(tool, notes) for tool in same]
        if not _NAME.fullmatch(name) or name in _RESERVED:
            notes.append(f"the tool {name!r} cannot be declared under this name; it is an unknown tool")
            continue
        entry = found[0]
        if any(each.get("schema_in") != entry.get("schema_in") for each in found):
            notes.append(f"the arguments of {name} are not checked: the agents have several tools of this name")
            entry.pop("schema_in", None)
        if any(each["effects"] == "write" for each in found):
            entry["effects"] = "write"
        yield name, entry


def _entry(tool: ToolDescription, notes: list[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"summary": summary} if (summary := _summary(tool.description)) else {}
    entry["effects"] = hinted_effects(tool.annotations)
    if tool.input_schema is None:
        return entry
    schema = simplify_schema(as_json(tool.input_schema))
    if faults := lint(schema):
        notes.append(f"the arguments of {tool.name} are not checked, since their schema is refused: {faults[0]}")
        return entry
    return {**entry, "schema_in": schema}


def _compare_tool(there: Any, tools: tuple[str, ...], name: str, entry: dict[str, Any], made: Adoption) -> None:
    if there is None:
        made.additions.append(Addition(tools, name, entry))
    elif "schema_in" not in there and "schema_in" in entry:
        made.additions.append(Addition((*tools, name), "schema_in", entry["schema_in"]))
    elif "schema_in" in entry and there["schema_in"] != entry["schema_in"]:
        why = f"the framework has another schema for the arguments of {name}"
        made.conflicts.append(Conflict((*tools, name, "schema_in"), why))


def _first_missing(settings: Object, path: tuple[str, ...], value: Any) -> Addition:
    """Return the addition that makes *value* the member at *path*, with the objects above it that are missing."""
    there: Any = settings
    for depth, key in enumerate(path):
        if not there.get(key):
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return Addition(path[:depth], key, value)
        there = there[key]
    raise ValueError(f"{path} is there")


def _replace(value: Any, path: tuple[str | int, ...], part: Any) -> Any:
    if not path:
        return part
    (key,) = path
    if isinstance(value, Mapping):
        return {**value, key: part}
    return [part if index == key else each for index, each in enumerate(value)]


def _summary(text: str) -> str:
    """Return the first paragraph as one line."""
    first = " ".join("".join(char if char.isprintable() else " " for char in text.strip().split("\n\n")[0]).split())
    return first if len(first) <= _SUMMARY else f"{first[: _SUMMARY - 1]}…"
