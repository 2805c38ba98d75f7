"""Messages, arguments and results as attributes, on request (``--contents``). A sealed value is only marked."""

import json
from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object

__all__ = ["format_message", "format_request", "format_response", "format_value"]

MAX_TEXT: Final = 32_768
"""The largest number of characters of one attribute; a longer text is cut and marked."""
_SEALED: Final = "$sealed"
_FINISH: Final[Mapping[str, str]] = {"tool_use": "tool_call", "max_tokens": "length", "safety": "content_filter"}


def format_value(value: Any) -> str:
    """Return a value as text, with sealed parts marked, cut if it is long."""
    open_ = _mark_sealed(value)
    text = open_ if isinstance(open_, str) else json.dumps(open_, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"


def format_message(role: str, text: Any) -> str:
    """Return one message in the form of the conventions."""
    return format_value([{"role": role, "parts": [_build_text(text)]}])


def format_request(request: Object) -> str:
    """Return the messages of a request to a model."""
    messages = _mark_sealed(request.get("messages"))
    return format_value(
        [_build_message(each) for each in messages if isinstance(each, dict)] if isinstance(messages, list) else []
    )


def format_response(response: Object) -> str:
    """Return the one message of a model's response."""
    parts = _build_parts(response)
    finish_reason = str(response.get("finish_reason", "stop"))
    return format_value(
        [{"role": "assistant", "parts": parts, "finish_reason": _FINISH.get(finish_reason, finish_reason)}]
    )


def _build_message(message: Object) -> dict[str, Any]:
    role = message.get("role")
    if role == "tool":
        part = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": message.get("content")}
        return {"role": "tool", "parts": [part]}
    return {"role": role, "parts": _build_parts({**message, "text": message.get("content")})}


def _build_parts(message: Object) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    parts = [_build_text(message["text"])] if message.get("text") else []
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict) and _SEALED not in call:
            name = {"type": "tool_call", "id": call.get("id"), "name": call.get("name")}
            parts.append({**name, "arguments": call.get("args")})
    return parts


def _build_text(content: Any) -> dict[str, Any]:
    return {"type": "text", "content": content}


def _mark_sealed(value: Any) -> Any:
    if isinstance(value, Mapping):
        if _SEALED in value:
            return f"[sealed, {value.get('size')} bytes]"
        return {name: _mark_sealed(each) for name, each in value.items()}
    return [_mark_sealed(each) for each in value] if isinstance(value, list) else value
