"""Convert the tools that an MCP server lists to what abilities need; pure.

Schemas of servers use older drafts and carry annotations of other tools. Certain constructs are converted to draft
2020-12, annotations that no validator asserts are removed and noted, and anything unclear refuses that one tool:
nothing is guessed. The lint is the same as for every other external schema.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.contract.hidden import hidden_in
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.format.lint import DIALECT, FORMATS, KEYWORDS
from deedbook.format.schema import foreign

OLD: Final = ("http://json-schema.org/draft-07/schema", "https://json-schema.org/draft/2019-09/schema")
"""Older drafts that are supported. In even older ones the same keywords have other meanings."""
HARMLESS: Final = frozenset(
    {
        "$id", "defaultSnippets", "deprecationMessage", "doNotSuggest", "enumDescriptions", "enumNames", "example",
        "externalDocs", "markdownDescription", "markdownEnumDescriptions", "meta:enum", "propertyOrdering", "xml",
    }
)  # fmt: skip
"""Annotations of other tools, which assert nothing about a value, like every key that begins with ``x-``."""
SUMMARY: Final = 1024

_ABILITY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_LONGEST: Final = 128
_NAMED: Final = frozenset({"$defs", "properties", "patternProperties", "dependentSchemas"})
_DEFS: Final = frozenset({"$defs", "definitions"})
_BESIDE_REF: Final = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})


@attrs.frozen
class ToolSchemas:
    """The schemas of a tool: its input, and its structured content (``None``: not declared).

    *notes* list what was removed from the schemas, each with its place.
    """

    takes: Object
    gives: Object | None
    notes: tuple[str, ...]


def convert_tool(tool: Mapping[str, Any]) -> ToolSchemas:
    """Return the schemas of a listed *tool*; raises `DeedbookError` with the reason if it cannot be an ability."""
    canonical.admit(dict(tool))
    if (found := next(hidden_in(dict(tool)), None)) is not None:
        raise UnsupportedTool(f"{found[0]} holds {found[1]}, which a person does not see and a model reads")
    execution = tool.get("execution")
    if isinstance(execution, Mapping) and execution.get("taskSupport") == "required":
        raise UnsupportedTool(
            "it works only as a task (execution.taskSupport: required), and tasks of servers are not offered"
        )
    notes: list[str] = []
    takes = _SchemaConverter(tool.get("inputSchema"), "inputSchema", notes).schema()
    if not isinstance(takes, dict) or takes.get("type") != "object":
        raise UnsupportedTool('inputSchema has to say "type": "object"')
    foreign(takes, place="inputSchema")
    gives = None
    if tool.get("outputSchema") is not None:
        gives = _SchemaConverter(tool["outputSchema"], "outputSchema", notes).schema()
        foreign(gives, place="outputSchema")
    return ToolSchemas(takes, gives if isinstance(gives, dict) else None, tuple(notes))


class UnsupportedTool(DeedbookError):  # noqa: N818 - a property of a listing, not a failure
    """A tool that cannot be an ability; its message gives the reason."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why

    def __str__(self) -> str:
        return self.why


def result_schema(gives: Object | None) -> Object | None:
    """Return the schema of a call's result, whose member ``structuredContent`` must match *gives*."""
    if gives is None:
        return None
    inner = _rebase(gives, "#/properties/structuredContent")
    return {"type": "object", "required": ["content", "structuredContent"], "properties": {"structuredContent": inner}}


def hinted_effects(tool: Mapping[str, Any]) -> str | None:
    """Return the effects that a tool's own annotations claim: ``read`` or ``write``; ``None`` if they claim nothing.

    A claim of a server is never trusted: it is only shown to a person. If hints contradict each other, the worse
    counts.
    """
    hints = tool.get("annotations")
    if not isinstance(hints, Mapping) or not isinstance(hints.get("readOnlyHint"), bool):
        return None
    return "read" if hints["readOnlyHint"] and hints.get("destructiveHint") is not True else "write"


def find_collisions(names: Iterable[str]) -> dict[str, str]:
    """Return the names that are equal except for case, each with the reason of the refusal."""
    seen: dict[str, list[str]] = {}
    for name in names:
        seen.setdefault(name.casefold(), []).append(name)
    return {
        name: f"{' and '.join(sorted(same))} would be one ability"
        for same in seen.values()
        if len(same) > 1
        for name in same
    }


def name_problem(server: str, name: Any) -> str | None:
    """Return why *name* cannot be the last part of an ability's id, or ``None``."""
    if not isinstance(name, str):
        return "its name is no text"
    if "/" in name:
        return f"its name has a slash, so that no rule for {server}/* would fit it"
    identity = f"{server}/{name}"
    fits = _ABILITY.fullmatch(identity) and len(identity) <= _LONGEST
    return None if fits else "its name can be no part of an ability's id"


def summary(server: str, tool: Mapping[str, Any]) -> str:
    """Return the tool's own description in one line. It is data from the server."""
    text = " ".join(str(tool.get("description") or tool.get("title") or "").split())
    text = text or f"the tool {tool.get('name')} of the MCP server {server}"
    return text if len(text) <= SUMMARY else f"{text[: SUMMARY - 1]}…"


# --- other drafts -----------------------------------------------------------------------------------------------------


class _SchemaConverter:
    """Converts one schema to draft 2020-12 and appends what it removes to *notes*."""

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
            self._note(where, "is a format that is not checked")
        elif key == "definitions" and "$defs" not in schema:
            yield "$defs", self._convert_members(value, where)
        elif key in _NAMED:
            yield key, self._convert_members(value, where)
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

    def _convert_members(self, value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: self._part(each, f"{where}.{name}") for name, each in value.items()}

    def _dependencies(self, value: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
        needed = {name: each for name, each in value.items() if isinstance(each, list)}
        schemas = {name: each for name, each in value.items() if name not in needed}
        if needed:
            yield "dependentRequired", needed
        if schemas:
            yield "dependentSchemas", self._convert_members(schemas, where)

    def _note(self, where: str, why: str) -> None:
        self._notes.append(f"{where} {why}")


def _rebase(schema: Any, base: str) -> Any:
    """Return a schema whose references are valid when it is embedded at *base* of another document."""
    if isinstance(schema, list):
        return [_rebase(each, base) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            made[key] = {name: _rebase(each, base) for name, each in value.items()}
        elif key in ("$ref", "$dynamicRef") and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            made[key] = base + value[1:]
        elif key in ("const", "default", "enum", "examples"):
            made[key] = value
        else:
            made[key] = _rebase(value, base)
    return made
