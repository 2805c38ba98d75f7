"""The form of an answer: a JSON Schema that a small model can fill, and the grammar that enforces it."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook import Failed, Object

from .libraries import library
from .vocabulary import Vocabulary

TEXT_LIMIT: Final = 240
"""The most characters of a text that the model writes into JSON."""
LIST_LIMIT: Final = 1
"""The most items of a list that the model writes into JSON."""
COMPACT: Final[Mapping[str, Any]] = MappingProxyType(
    {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
)
"""How llguidance lets JSON be written: in one way only."""
CALL: Final = "call"
ARGS: Final = "args"
ANSWER: Final = "answer"

_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": TEXT_LIMIT}
_NOTES: Final = frozenset({"$schema", "$id", "$comment", "title", "description", "default", "examples"})


@attrs.frozen
class Form:
    """What an answer looks like: *schema* is ``None`` for free text; with tools it is a call or an answer."""

    schema: Mapping[str, Any] | None
    calls: bool = False

    @classmethod
    def of(cls, response: Object | None, tools: Sequence[Object]) -> "Form":
        """Return the form for a response schema, a text without one, and the calls of *tools*."""
        told = None if response is None else narrow_schema(response)
        if not tools:
            return cls(told)
        calls = [_object({CALL: {"const": tool["name"]}, ARGS: _arguments(tool)}) for tool in tools]
        return cls({"anyOf": [*calls, _object({ANSWER: _TEXT if told is None else told})]}, calls=True)

    def grammar(self, vocabulary: Vocabulary) -> Any:
        """Return llguidance's matcher for a fresh answer; raises `Failed` for a schema that it cannot enforce."""
        if self.schema is None:
            return None
        matcher_type = library("llguidance").LLMatcher
        rules = matcher_type.grammar_from_json_schema(json.dumps(self.schema), overrides=dict(COMPACT))
        matcher = matcher_type(vocabulary.grammars, rules, log_level=0)
        if matcher.is_error():
            raise Failed("PROVIDER_ERROR", f"the schema of the answer cannot be enforced: {matcher.get_error()}")
        return matcher


def open_tools(request: Object) -> list[Object]:
    """Return the tools of a request that the conversation has not used yet.

    So small a model repeats a call for ever, so each tool is offered until it has been called once.
    """
    used = {call["name"] for message in request["messages"] for call in message.get("tool_calls", ())}
    return [tool for tool in request.get("tools") or () if tool["name"] not in used]


def narrow_schema(schema: Object) -> dict[str, Any]:
    """Return *schema* without its optional properties, with limits for texts and lists, at every depth.

    What fits the result fits *schema*. Without limits, so small a model would not end a text or a list.
    """
    told = {key: value for key, value in schema.items() if key not in _NOTES}
    if isinstance(told.get("properties"), Mapping):
        required = [name for name in told.get("required", ()) if name in told["properties"]]
        told["properties"] = {name: _part(told["properties"][name]) for name in required}
        told["additionalProperties"] = False
    for name in ("items", "additionalProperties"):
        if name in told:
            told[name] = _part(told[name])
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if name in told:
            told[name] = [_part(part) for part in told[name]]
    for name in ("$defs", "definitions"):
        if name in told:
            told[name] = {key: _part(part) for key, part in told[name].items()}
    return _limit(told)


def _limit(schema: dict[str, Any]) -> dict[str, Any]:
    if _may_be(schema, "string") and not schema.keys() & {"enum", "const", "pattern", "format"}:
        most = max(TEXT_LIMIT, schema.get("minLength", 0))
        schema["maxLength"] = min(schema.get("maxLength", most), most)
    if _may_be(schema, "array"):
        most = max(LIST_LIMIT, schema.get("minItems", 0))
        schema["maxItems"] = min(schema.get("maxItems", most), most)
    return schema


def _may_be(schema: Mapping[str, Any], kind: str) -> bool:
    told = schema.get("type")
    return told == kind or (isinstance(told, list) and kind in told)


def _part(part: Any) -> Any:
    return narrow_schema(part) if isinstance(part, Mapping) else part


def _arguments(tool: Object) -> dict[str, Any]:
    schema = tool.get("schema_in") or {}
    return narrow_schema({"type": "object", "properties": {}, **schema})


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
