"""Abilities of a charter as the tools of an MCP server: names, schemas, annotations; in a fixed order, with pages."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs
from mcp_types import ListToolsResult, Tool, ToolAnnotations

from deedbook import Object
from deedbook.policy.bound import RUN_REFERENCE_DIGEST
from deedbook_tool_mcp.listings import summary
from deedbook_tool_mcp.requests import is_request

from .names import index_by_tool_name

PAGE: Final = 100
"""How many tools one page lists."""
FRESH_MS: Final = 3_600_000
"""How long a client may keep a listing, in milliseconds: a charter does not change while it is served."""
_WRAPPED: Final = "result"
_STRUCTURED: Final = "structuredContent"
_LITERAL: Final = frozenset({"const", "default", "enum", "examples"})
_NAMED: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})

_RUN_OUTCOME: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["context", "state", "reply"],
    "properties": {
        "context": {"type": "string", "description": "The run, for the record."},
        "state": {"type": "string", "description": "How the run ended."},
        "reply": {"type": "string", "description": "The answer of the run."},
    },
    "additionalProperties": False,
}
"""What a client gets of a flow that keeps a context (`RunContext.outcome`)."""


@attrs.frozen
class AbilityTool:
    """An ability as a tool.

    *is_wrapped*: its result is not an object and becomes ``result`` of one. *is_content*: its result has the form of
    MCP, ``content`` blocks and perhaps ``structuredContent``. *makes_calls*: it uses other abilities.
    """

    ability: str
    tool: Tool
    is_wrapped: bool
    is_content: bool
    makes_calls: bool = False


class ToolList:
    """Tools for a client by name; *known* has the ability of every name, also of those that the client may not use.

    A name that is not known is recorded with *unknown* before it.
    """

    def __init__(self, known: Mapping[str, str], tools: Mapping[str, AbilityTool], unknown: str = "") -> None:
        self._known, self._tools, self._unknown = known, tools, unknown
        self._names = {tool.ability: name for name, tool in self._tools.items()}

    def __iter__(self) -> Iterator[AbilityTool]:
        return iter(self._tools.values())

    def find(self, name: str) -> AbilityTool | None:
        """Return the tool of that name; the ability's own id also works."""
        return self._tools.get(name) or self._tools.get(self._names.get(name, ""))

    def find_ability(self, name: str) -> str:
        """Return the ability behind the tool *name*, even if this client may not use it; else a name for the record."""
        found = self.find(name)
        return found.ability if found else self._known.get(name, f"{self._unknown}{name}")

    def find_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema of the tool's arguments, if there is one."""
        found = self.find(name)
        return found.tool.input_schema if found else None

    def list_page(self, cursor: str | None) -> ListToolsResult | None:
        """Return the tools from *cursor* on (default: from the first); ``None`` for an unknown cursor."""
        names = list(self._tools)
        if cursor is not None and cursor not in names:
            return None
        start = names.index(cursor) if cursor is not None else 0
        tools = [self._tools[name].tool for name in names[start : start + PAGE]]
        left = names[start + PAGE : start + PAGE + 1]
        return ListToolsResult(tools=tools, next_cursor=left[0] if left else None)


def list_abilities(document: Mapping[str, Any], abilities: Collection[str]) -> ToolList:
    """Return the tools for those *abilities* of a charter's *document* that a client may use.

    The requests of servers besides their tools are no tools: the gateway passes them on as what they are.
    """
    entries = document["abilities"]
    known = index_by_tool_name(entries)
    tools = {
        name: _build_tool(name, ability, document)
        for name, ability in known.items()
        if ability in abilities and not is_request(entries[ability]["plugin"])
    }
    refused = {
        name: f"request: {ability}"
        for tool, ability in known.items()
        if is_request(entries[ability]["plugin"])
        for name in (tool, ability)
    }
    return ToolList({**known, **refused}, tools)


def list_upstream_tools(document: Mapping[str, Any], abilities: Collection[str], upstream: str) -> ToolList:
    """Return the tools of the server *upstream* under their own names, as pinned, as far as they are in *abilities*."""
    known = {tool: f"{upstream}/{tool}" for tool in document["servers"][upstream]["offers"]}
    usable = {tool: ability for tool, ability in known.items() if ability in abilities}
    tools = {tool: _build_upstream_tool(ability, document) for tool, ability in usable.items()}
    return ToolList(known, tools, unknown=f"{upstream}: ")


def build_annotations(effects: str, tags: Collection[str]) -> ToolAnnotations:
    """Return the annotations for *effects* and *tags*; without them, the worst case.

    Tags: ``additive`` (a write that destroys nothing), ``idempotent``, ``closed-world`` (reaches nothing outside) and
    ``open-world``.
    """
    reads = effects in ("none", "read")
    reaches = effects != "none" and "closed-world" not in tags
    return ToolAnnotations(
        read_only_hint=reads,
        destructive_hint=None if reads else effects == "irreversible" or "additive" not in tags,
        idempotent_hint=None if reads else "idempotent" in tags,
        open_world_hint="open-world" in tags or reaches,
    )


def _build_tool(name: str, ability: str, document: Mapping[str, Any]) -> AbilityTool:
    entry, schemas = document["abilities"][ability], document["schemas"]
    takes = {**merge_schemas(schemas[entry["takes"]], schemas.get(entry["schema_in"])), "type": "object"}
    keeps_context = entry["kind"] == "flow" and entry["gives"] == RUN_REFERENCE_DIGEST
    gives = _RUN_OUTCOME if keeps_context else merge_schemas(schemas[entry["gives"]], schemas.get(entry["schema_out"]))
    wraps, content = gives.get("type") != "object", _is_content(gives)
    output_schema = _find_structured(gives) if content else wrap_schema(gives) if wraps else dict(gives)
    tool = Tool(
        name=name,
        description=entry["summary"],
        input_schema=takes,
        output_schema=output_schema,
        annotations=build_annotations(entry["effects"], entry["tags"]),
    )
    return AbilityTool(ability, tool, wraps, content, entry["kind"] == "flow" or bool(entry["uses"]))


def _build_upstream_tool(ability: str, document: Mapping[str, Any]) -> AbilityTool:
    """Return a tool as the server listed it; its annotations are what the workspace declares."""
    entry = document["abilities"][ability]
    pinned = entry["settings"]["pinned"]
    server = entry["settings"]["server"]
    is_own = entry["summary"] == summary(server, pinned)
    annotations = build_annotations(entry["effects"], entry["tags"])
    annotations.title = (pinned.get("annotations") or {}).get("title")
    tool = Tool(
        name=pinned["name"],
        title=pinned.get("title"),
        description=pinned.get("description") if is_own else entry["summary"],
        input_schema=pinned["inputSchema"],
        output_schema=pinned.get("outputSchema"),
        annotations=annotations,
    )
    return AbilityTool(ability, tool, is_wrapped=False, is_content=True)


def merge_schemas(plugin: Object, narrowed: Object | None) -> Object:
    """Return a plugin's schema with the YAML schema merged over it, as models see it."""
    if narrowed is None:
        return plugin
    parts = {
        part: {**plugin.get(part, {}), **narrowed.get(part, {})}
        for part in ("properties", "$defs")
        if part in plugin or part in narrowed
    }
    required = sorted({*plugin.get("required", ()), *narrowed.get("required", ())})
    return {**plugin, **narrowed, **parts, **({"required": required} if required else {})}


def wrap_schema(schema: Object) -> dict[str, Any]:
    """Return the schema of an object whose ``result`` fits *schema*."""
    inner = _move_schema(schema, "#", f"#/properties/{_WRAPPED}")
    for name in ("$schema", "$id"):
        inner.pop(name, None)
    return {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED]}


def _find_structured(gives: Object) -> dict[str, Any] | None:
    """Return the schema of the structured content, if every result has it."""
    inner = gives.get("properties", {}).get(_STRUCTURED)
    if _STRUCTURED not in gives.get("required", ()) or not isinstance(inner, Mapping) or inner.get("type") != "object":
        return None
    moved: dict[str, Any] = _move_schema(inner, f"#/properties/{_STRUCTURED}", "#")
    return moved


def _move_schema(schema: Any, old: str, new: str) -> Any:
    """Return *schema*, moved from *old* to *new* in its document, with its references to itself adjusted."""
    if isinstance(schema, list):
        return [_move_schema(each, old, new) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _move_member(key, value, old, new) for key, value in schema.items()}


def _move_member(key: str, value: Any, old: str, new: str) -> Any:
    if key == "$ref" and isinstance(value, str) and (value == old or value.startswith(f"{old}/")):
        return f"{new}{value[len(old) :]}"
    if key in _LITERAL:
        return value
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _move_schema(each, old, new) for name, each in value.items()}
    return _move_schema(value, old, new)


def _is_content(gives: Object) -> bool:
    """Return whether results are blocks of content, each with its type, like those of MCP's own tools."""
    blocks = gives.get("properties", {}).get("content", {})
    items = blocks.get("items", {}) if isinstance(blocks, Mapping) else {}
    typed = isinstance(items, Mapping) and "type" in items.get("required", ())
    return "content" in gives.get("required", ()) and blocks.get("type") == "array" and typed
