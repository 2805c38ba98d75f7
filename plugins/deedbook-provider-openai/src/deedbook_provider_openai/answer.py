"""From a ``chat.completion`` to a response."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object
from deedbook_provider_http.names import Names
from deedbook_provider_http.reply import (
    calls_of,
    count,
    counts_of,
    obj,
    reason_of,
    response,
    text_of,
    tool_call,
    unclear,
    usage_of,
)

_REASONS: Final = {
    "stop": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "safety",
}


def read(completion: Any, request: Object, names: Names, prices: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the response that a *completion*, as parsed from JSON, is to *request*."""
    choice = _choice(completion)
    message = obj(choice.get("message"), "the choice has no message")
    refusal = text_of(message.get("refusal"), "the message's refusal is no text")
    text = text_of(message.get("content"), "the message's content is no text")
    reason = _reason(choice, refusal)

    def call(item: Any, number: int) -> Object:
        return _call(item, number, request, names)

    listed = message.get("tool_calls") or []
    if not isinstance(listed, list):
        unclear("tool_calls is no list")
    return response(
        request,
        text=refusal or text,
        calls=calls_of(reason, listed, call),
        reason=reason,
        usage=read_usage(completion, request, text, prices, asked="prompt_tokens", written="completion_tokens"),
        model=completion.get("model"),
    )


def _choice(completion: Any) -> dict[str, Any]:
    choices = obj(completion, "the answer is no JSON object").get("choices")
    if not isinstance(choices, list) or not choices:
        unclear("the answer has no choices")
    return obj(choices[0], "the choice is no JSON object")


def _reason(choice: Mapping[str, Any], refusal: str) -> str:
    return "safety" if refusal else reason_of(choice.get("finish_reason"), "finish_reason", _REASONS)


def _call(item: Any, number: int, request: Object, names: Names) -> Object:
    call = obj(item, "a tool call is no JSON object")
    if call.get("type", "function") not in ("function", None):
        unclear(f"a tool call of the type {str(call['type'])[:40]!r}; only functions were offered")
    function = obj(call.get("function"), "a tool call names no function")
    name, args = function.get("name"), function.get("arguments")
    return tool_call(request, names, name, args, given=call.get("id"), number=number)


def read_usage(
    answer: Object, request: Object, text: str, prices: Mapping[str, Any] | None, *, asked: str, written: str
) -> Object:
    """Return what was used; *asked* and *written* are what one of the two protocols calls its counts."""
    told = counts_of(answer, "usage")
    details = told.get(f"{asked}_details")
    return usage_of(
        request,
        text,
        read=count(told, asked),
        written=count(told, written),
        prices=prices,
        cached=count(details, "cached_tokens") or 0 if isinstance(details, Mapping) else 0,
    )
