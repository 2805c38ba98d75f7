"""The shapes of ``completion_request_v2`` and ``completion_response_v2``, and how a response is made."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deedbook import Object

_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": "string", "minLength": 1}
_CALLS: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["id", "name", "args"],
        "properties": {"id": _NAME, "name": _NAME, "args": {"type": "object"}},
        "additionalProperties": False,
    },
}
_MESSAGE: Final = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["system", "user", "assistant", "tool"]},
        "content": _TEXT,
        "tool_calls": _CALLS,
        "tool_call_id": _NAME,
    },
    "additionalProperties": False,
}
_TOOL: Final = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": _NAME, "description": _TEXT, "schema_in": {"type": "object"}},
    "additionalProperties": False,
}
_SKILL: Final = {
    "type": ["object", "null"],
    "required": ["name", "description", "metadata"],
    "properties": {"name": _TEXT, "description": _TEXT, "metadata": {"type": "object"}},
    "additionalProperties": False,
}

REQUEST: Final[Object] = {
    "type": "object",
    "required": ["messages", "model", "schema_version"],
    "properties": {
        "messages": {"type": "array", "items": _MESSAGE, "minItems": 1},
        "model": _TEXT,
        "tools": {"type": "array", "items": _TOOL},
        "response_schema": _NAME,
        "role": _NAME,
        "skill": _SKILL,
        "max_tokens": {"type": "integer", "minimum": 1},
        "temperature": {"type": "number", "minimum": 0},
        "schema_version": {"const": "v2"},
    },
    "additionalProperties": False,
}
"""What both providers take: ``completion_request_v2``."""

RESPONSE: Final[Object] = {
    "type": "object",
    "required": ["text", "tool_calls", "finish_reason", "usage", "model", "schema_version"],
    "properties": {
        "text": _TEXT,
        "tool_calls": _CALLS,
        "finish_reason": {"enum": ["stop", "tool_use", "max_tokens", "safety"]},
        "usage": {
            "type": "object",
            "required": ["input_tokens", "output_tokens"],
            "properties": {
                "input_tokens": {"type": "integer", "minimum": 0},
                "output_tokens": {"type": "integer", "minimum": 0},
                "cost_usd": {"type": "number", "minimum": 0},
            },
            "additionalProperties": False,
        },
        "model": _TEXT,
        "schema_version": {"const": "v2"},
    },
    "additionalProperties": False,
}
"""What both providers give: ``completion_response_v2``."""


def response(request: Object, *, text: str = "", tool_calls: Sequence[Object] = ()) -> dict[str, Any]:
    """Return a response to *request*: a final *text*, or *tool_calls* to be made first."""
    made = [dict(call) for call in tool_calls]
    return {
        "text": text,
        "tool_calls": made,
        "finish_reason": "tool_use" if made else "stop",
        "usage": usage(request, text + (compact(made) if made else "")),
        "model": request["model"],
        "schema_version": "v2",
    }


def usage(request: Object, answer: str) -> dict[str, int]:
    """Estimate both sides in tokens of four bytes, at least one each; nothing was counted by a model's tokenizer."""
    asked = sum(len(message["content"].encode()) for message in request["messages"])
    return {"input_tokens": _tokens(asked), "output_tokens": _tokens(len(answer.encode()))}


def _tokens(size: int) -> int:
    return max(1, -(-size // 4))


def compact(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return *value* as JSON on one line, keys sorted."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
