"""Abilities of a charter as the tools of an MCP server: names, schemas, annotations; in one order, page by page."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs
from mcp_types import ListToolsResult, Tool, ToolAnnotations

from deedbook import Object

from .serving_names import by_tool_name

PAGE: Final = 100
"""How many tools are listed at once."""
FRESH_MS: Final = 3_600_000
"""How long a client may keep a listing: a charter does not change while it is served."""
_WRAPPED: Final = "result"
_STRUCTURED: Final = "structuredContent"
_LITERAL: Final = frozenset({"const", "default", "enum", "examples"})
_NAMED: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


@attrs.frozen
class Offered:
    """An ability as a tool.

    *wraps*: its result is no object and stands as ``result`` in one; *content*: its result is MCP's own form of one,
    ``content`` blocks and perhaps ``structuredContent``.
    """

    ability: str
    tool: Tool
    wraps: bool
    content: bool


class Shelf:
    """The tools of those *abilities* of a charter's *document* which a client may use."""

    def __init__(self, document: Mapping[str, Any], abilities: Collection[str]) -> None:
        self._known = by_tool_name(document["abilities"])
        self._offered = {
            name: _offered(name, ability, document) for name, ability in self._known.items() if ability in abilities
        }
        self._names = {offered.ability: name for name, offered in self._offered.items()}

    def __iter__(self) -> Iterator[Offered]:
        return iter(self._offered.values())

    def find(self, name: str) -> Offered | None:
        """Return the tool of that name; an ability's own id is understood, too."""
        return self._offered.get(name) or self._offered.get(self._names.get(name, ""))

    def ability(self, name: str) -> str:
        """Return the ability that *name* is the tool of, whether or not this client may use it; else *name* itself."""
        found = self.find(name)
        return found.ability if found else self._known.get(name, name)

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema of the arguments of the tool of that name, if there is one."""
        found = self.find(name)
        return found.tool.input_schema if found else None

    def page(self, cursor: str | None) -> ListToolsResult | None:
        """Return the tools from *cursor* on (none: from the first); ``None`` for a cursor that nobody gave."""
        names = list(self._offered)
        if cursor is not None and cursor not in names:
            return None
        start = names.index(cursor) if cursor is not None else 0
        shown = [self._offered[name].tool for name in names[start : start + PAGE]]
        left = names[start + PAGE : start + PAGE + 1]
        return ListToolsResult(tools=shown, next_cursor=left[0] if left else None)


def annotations(effects: str, tags: Collection[str]) -> ToolAnnotations:
    """Return what *effects* and *tags* tell a client; where nothing is said, the worst is.

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


def _offered(name: str, ability: str, document: Mapping[str, Any]) -> Offered:
    entry, schemas = document["abilities"][ability], document["schemas"]
    takes = {**merged(schemas[entry["takes"]], schemas.get(entry["schema_in"])), "type": "object"}
    gives = merged(schemas[entry["gives"]], schemas.get(entry["schema_out"]))
    wraps, content = gives.get("type") != "object", _is_content(gives)
    shown = _structured(gives) if content else wrapped(gives) if wraps else dict(gives)
    tool = Tool(
        name=name,
        description=entry["summary"],
        input_schema=takes,
        output_schema=shown,
        annotations=annotations(entry["effects"], entry["tags"]),
    )
    return Offered(ability, tool, wraps, content)


def merged(plugin: Object, narrowed: Object | None) -> Object:
    """Return a plugin's schema with what YAML narrows written over it, as models are shown it, too."""
    if narrowed is None:
        return plugin
    parts = {
        part: {**plugin.get(part, {}), **narrowed.get(part, {})}
        for part in ("properties", "$defs")
        if part in plugin or part in narrowed
    }
    required = sorted({*plugin.get("required", ()), *narrowed.get("required", ())})
    return {**plugin, **narrowed, **parts, **({"required": required} if required else {})}


def wrapped(schema: Object) -> dict[str, Any]:
    """Return the schema of an object whose ``result`` is what *schema* says."""
    inner = _moved(schema, "#", f"#/properties/{_WRAPPED}")
    for name in ("$schema", "$id"):
        inner.pop(name, None)
    return {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED]}


def _structured(gives: Object) -> dict[str, Any] | None:
    """Return the schema of the structured content that results always have, if they have."""
    inner = gives.get("properties", {}).get(_STRUCTURED)
    if _STRUCTURED not in gives.get("required", ()) or not isinstance(inner, Mapping) or inner.get("type") != "object":
        return None
    moved: dict[str, Any] = _moved(inner, f"#/properties/{_STRUCTURED}", "#")
    return moved


def _moved(schema: Any, old: str, new: str) -> Any:
    """Return *schema*, which stood at *old* in its document, with its references to itself as it stands at *new*."""
    if isinstance(schema, list):
        return [_moved(each, old, new) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _member(key, value, old, new) for key, value in schema.items()}


def _member(key: str, value: Any, old: str, new: str) -> Any:
    if key == "$ref" and isinstance(value, str) and (value == old or value.startswith(f"{old}/")):
        return f"{new}{value[len(old) :]}"
    if key in _LITERAL:
        return value
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _moved(each, old, new) for name, each in value.items()}
    return _moved(value, old, new)


def _is_content(gives: Object) -> bool:
    """Say whether results are blocks of content, each with its type, as MCP's own tools give them."""
    blocks = gives.get("properties", {}).get("content", {})
    items = blocks.get("items", {}) if isinstance(blocks, Mapping) else {}
    typed = isinstance(items, Mapping) and "type" in items.get("required", ())
    return "content" in gives.get("required", ()) and blocks.get("type") == "array" and typed
