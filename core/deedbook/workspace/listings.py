"""What an MCP server lists, made into what abilities need; pure.

Schemas of servers are written for older drafts, and carry annotations of other tools. What is certain is said as draft
2020-12 says it, annotations that no validator asserts are left out and noted, and whatever stays unclear refuses that
one tool: nothing is guessed, and the lint is the same as for every schema from outside.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.format.lint import DIALECT, FORMATS, KEYWORDS
from deedbook.format.schema import foreign

OLD: Final = ("http://json-schema.org/draft-07/schema", "https://json-schema.org/draft/2019-09/schema")
"""Older drafts that are understood; of the even older ones the same words mean other things."""
HARMLESS: Final = frozenset(
    {
        "$id", "defaultSnippets", "deprecationMessage", "doNotSuggest", "enumDescriptions", "enumNames", "example",
        "externalDocs", "markdownDescription", "markdownEnumDescriptions", "meta:enum", "propertyOrdering", "xml",
    }
)  # fmt: skip
"""Annotations of other tools, which assert nothing about a value; so does whatever begins with ``x-``."""
SUMMARY: Final = 1024

_ABILITY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_LONGEST: Final = 128
_NAMED: Final = frozenset({"$defs", "properties", "patternProperties", "dependentSchemas"})
_DEFS: Final = frozenset({"$defs", "definitions"})
_BESIDE_REF: Final = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})


@attrs.frozen
class Offered:
    """A tool as an ability has it: what it takes, and what its structured content is (``None``: nothing is said).

    *notes* say what of its schemas was left out, each with its place.
    """

    takes: Object
    gives: Object | None
    notes: tuple[str, ...]


def offered(tool: Mapping[str, Any]) -> Offered:
    """Return a listed *tool* as an ability has it; raises `DeedbookError` with why it cannot be one."""
    canonical.admit(dict(tool))
    execution = tool.get("execution")
    if isinstance(execution, Mapping) and execution.get("taskSupport") == "required":
        raise Unclear("it works only as a task (execution.taskSupport: required), and tasks of servers are not offered")
    notes: list[str] = []
    takes = _Plain(tool.get("inputSchema"), "inputSchema", notes).schema()
    if not isinstance(takes, dict) or takes.get("type") != "object":
        raise Unclear('inputSchema has to say "type": "object"')
    foreign(takes, place="inputSchema")
    gives = None
    if tool.get("outputSchema") is not None:
        gives = _Plain(tool["outputSchema"], "outputSchema", notes).schema()
        foreign(gives, place="outputSchema")
    return Offered(takes, gives if isinstance(gives, dict) else None, tuple(notes))


class Unclear(DeedbookError):  # noqa: N818 - what a listing is, not a failure of ours
    """A tool that cannot be an ability; its message says why."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why

    def __str__(self) -> str:
        return self.why


def result_schema(gives: Object | None) -> Object | None:
    """Return the schema of a call's result, whose member ``structuredContent`` fits *gives*."""
    if gives is None:
        return None
    inner = _moved(gives, "#/properties/structuredContent")
    return {"type": "object", "required": ["content", "structuredContent"], "properties": {"structuredContent": inner}}


def hinted_effects(tool: Mapping[str, Any]) -> str | None:
    """Return the effects that a tool's own annotations claim: ``read`` or ``write``; ``None`` if they claim nothing.

    Nobody takes a server's word for it: a person reads what becomes of this. Where hints contradict each other, the
    worse counts.
    """
    hints = tool.get("annotations")
    if not isinstance(hints, Mapping) or not isinstance(hints.get("readOnlyHint"), bool):
        return None
    return "read" if hints["readOnlyHint"] and hints.get("destructiveHint") is not True else "write"


def collisions(names: Iterable[str]) -> dict[str, str]:
    """Return the names that differ by nothing or by case only, each with why it is refused."""
    seen: dict[str, list[str]] = {}
    for name in names:
        seen.setdefault(name.casefold(), []).append(name)
    return {
        name: f"{' and '.join(sorted(same))} would be one ability"
        for same in seen.values()
        if len(same) > 1
        for name in same
    }


def refusal(server: str, name: Any) -> str | None:
    """Return why *name* cannot be the end of an ability's id, if it cannot."""
    if not isinstance(name, str):
        return "its name is no text"
    if "/" in name:
        return f"its name has a slash, so that no rule for {server}/* would fit it"
    identity = f"{server}/{name}"
    fits = _ABILITY.fullmatch(identity) and len(identity) <= _LONGEST
    return None if fits else "its name can be no part of an ability's id"


def summary(server: str, tool: Mapping[str, Any]) -> str:
    """Return in one line what a tool says that it does; this is data, whatever it says."""
    told = " ".join(str(tool.get("description") or tool.get("title") or "").split())
    said = told or f"the tool {tool.get('name')} of the MCP server {server}"
    return said if len(said) <= SUMMARY else f"{said[: SUMMARY - 1]}…"


# --- other drafts -----------------------------------------------------------------------------------------------------


class _Plain:
    """One schema, said in draft 2020-12; *notes* takes what is left out."""

    def __init__(self, said: Any, what: str, notes: list[str]) -> None:
        self._said, self._what, self._notes = said, what, notes
        dialect = said.get("$schema", DIALECT) if isinstance(said, dict) else DIALECT
        self._old = isinstance(dialect, str) and dialect.removesuffix("#") in OLD
        self._known = self._old or (isinstance(dialect, str) and dialect.removesuffix("#") == DIALECT)

    def schema(self) -> Any:
        """Return the whole schema."""
        made = self._part(self._said, self._what)
        if isinstance(made, dict) and self._known:
            made.pop("$schema", None)
        return made

    def _part(self, schema: Any, at: str) -> Any:
        if not isinstance(schema, dict):
            return schema
        kept = schema
        if self._old and "$ref" in schema:
            kept = {key: value for key, value in schema.items() if key in _BESIDE_REF | {"$ref", "$schema", *_DEFS}}
            for key in sorted(schema.keys() - kept.keys()):
                self._note(f"{at}.{key}", "stands beside $ref, where its draft ignores it")
        made: dict[str, Any] = {}
        for key, value in kept.items():
            made.update(self._keyword(key, value, kept, at))
        return made

    def _keyword(self, key: str, value: Any, schema: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any]]:
        where = f"{at}.{key}"
        if key.startswith("x-") or key in HARMLESS:
            self._note(where, "is an annotation")
        elif key == "format" and (value not in FORMATS or "string" not in schema.get("type", ())):
            self._note(where, "is a format that nobody checks")
        elif key == "definitions" and "$defs" not in schema:
            yield "$defs", self._named(value, where)
        elif key in _NAMED:
            yield key, self._named(value, where)
        elif key == "$ref" and isinstance(value, str) and value.startswith("#/definitions/"):
            yield key, "#/$defs/" + value.removeprefix("#/definitions/")
        elif self._old and key == "items" and isinstance(value, list):
            yield "prefixItems", [self._part(each, f"{where}[{index}]") for index, each in enumerate(value)]
        elif self._old and key == "additionalItems" and isinstance(schema.get("items"), list):
            yield "items", self._part(value, where)
        elif self._old and key == "dependencies" and isinstance(value, dict):
            yield from self._dependencies(value, where)
        elif key in KEYWORDS and KEYWORDS[key].fits(value):
            yield key, self._inside(key, value, where)
        else:
            yield key, value

    def _inside(self, key: str, value: Any, where: str) -> Any:
        if not list(KEYWORDS[key].inside(value)):
            return value
        if isinstance(value, list):
            return [self._part(each, f"{where}[{index}]") for index, each in enumerate(value)]
        return self._part(value, where)

    def _named(self, value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: self._part(each, f"{where}.{name}") for name, each in value.items()}

    def _dependencies(self, value: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
        needed = {name: each for name, each in value.items() if isinstance(each, list)}
        schemas = {name: each for name, each in value.items() if name not in needed}
        if needed:
            yield "dependentRequired", needed
        if schemas:
            yield "dependentSchemas", self._named(schemas, where)

    def _note(self, where: str, why: str) -> None:
        self._notes.append(f"{where} {why}")


def _moved(schema: Any, base: str) -> Any:
    """Return a schema that stands at *base* of another document: what it refers to is found there."""
    if isinstance(schema, list):
        return [_moved(each, base) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            made[key] = {name: _moved(each, base) for name, each in value.items()}
        elif key in ("$ref", "$dynamicRef") and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            made[key] = base + value[1:]
        elif key in ("const", "default", "enum", "examples"):
            made[key] = value
        else:
            made[key] = _moved(value, base)
    return made
