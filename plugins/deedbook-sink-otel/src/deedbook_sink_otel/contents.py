"""What was said and done, as attributes; asked for with ``--contents``. Of a sealed value there is only that it was."""

import json
from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object

__all__ = ["answered", "asked", "said", "text_of"]

MOST: Final = 32_768
"""Characters of one attribute; what is longer is cut, and says so."""
_SEALED: Final = "$sealed"
_FINISH: Final[Mapping[str, str]] = {"tool_use": "tool_call", "max_tokens": "length", "safety": "content_filter"}


def text_of(value: Any) -> str:
    """Return a value as text, without any sealed part, and cut where it is long."""
    open_ = _unsealed(value)
    text = open_ if isinstance(open_, str) else json.dumps(open_, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= MOST else f"{text[:MOST]}… ({len(text)} characters)"


def said(role: str, text: Any) -> str:
    """Return one message as the conventions have it."""
    return text_of([{"role": role, "parts": [_text(text)]}])


def asked(request: Object) -> str:
    """Return the messages of a request to a model."""
    messages = _unsealed(request.get("messages"))
    return text_of(
        [_message(each) for each in messages if isinstance(each, dict)] if isinstance(messages, list) else []
    )


def answered(response: Object) -> str:
    """Return the one message of a model's answer."""
    parts = _parts(response)
    told = str(response.get("finish_reason", "stop"))
    return text_of([{"role": "assistant", "parts": parts, "finish_reason": _FINISH.get(told, told)}])


def _message(message: Object) -> dict[str, Any]:
    role = message.get("role")
    if role == "tool":
        part = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": message.get("content")}
        return {"role": "tool", "parts": [part]}
    return {"role": role, "parts": _parts({**message, "text": message.get("content")})}


def _parts(told: Object) -> list[dict[str, Any]]:
    calls = told.get("tool_calls")
    parts = [_text(told["text"])] if told.get("text") else []
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict) and _SEALED not in call:
            name = {"type": "tool_call", "id": call.get("id"), "name": call.get("name")}
            parts.append({**name, "arguments": call.get("args")})
    return parts


def _text(content: Any) -> dict[str, Any]:
    return {"type": "text", "content": content}


def _unsealed(value: Any) -> Any:
    if isinstance(value, Mapping):
        if _SEALED in value:
            return f"[sealed, {value.get('size')} bytes]"
        return {name: _unsealed(each) for name, each in value.items()}
    return [_unsealed(each) for each in value] if isinstance(value, list) else value
