"""From a ``chat.completion`` to ``completion_response_v2``."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object
from deedbook_provider_http.names import Names
from deedbook_provider_http.reply import (
    asked_estimate,
    calls_of,
    count,
    estimate,
    obj,
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


def read(completion: Any, request: Object, names: Names, prices: Mapping[str, float] | None) -> dict[str, Any]:
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
        usage=_usage(completion, request, text, prices),
        model=completion.get("model"),
    )


def _choice(completion: Any) -> dict[str, Any]:
    choices = obj(completion, "the answer is no JSON object").get("choices")
    if not isinstance(choices, list) or not choices:
        unclear("the answer has no choices")
    return obj(choices[0], "the choice is no JSON object")


def _reason(choice: Mapping[str, Any], refusal: str) -> str:
    told = choice.get("finish_reason")
    if refusal:
        return "safety"
    if not isinstance(told, str) or told not in _REASONS:
        unclear(f"the answer has the finish_reason {str(told)[:40]!r}; known are {', '.join(_REASONS)}")
    return _REASONS[told]


def _call(item: Any, number: int, request: Object, names: Names) -> Object:
    call = obj(item, "a tool call is no JSON object")
    if call.get("type", "function") not in ("function", None):
        unclear(f"a tool call of the type {str(call['type'])[:40]!r}; only functions were offered")
    function = obj(call.get("function"), "a tool call names no function")
    name, args = function.get("name"), function.get("arguments")
    return tool_call(request, names, name, args, given=call.get("id"), number=number)


def _usage(completion: Object, request: Object, text: str, prices: Mapping[str, float] | None) -> Object:
    """Return what was used. An endpoint that does not count gets an estimate, so that budgets still bind."""
    told = completion.get("usage")
    told = {} if told is None else obj(told, "the usage is no JSON object")
    asked, written = count(told, "prompt_tokens"), count(told, "completion_tokens")
    read_ = asked_estimate(request) if asked is None else asked
    details = told.get("prompt_tokens_details")
    cached = count(details, "cached_tokens") or 0 if isinstance(details, Mapping) else 0
    wrote = estimate(text) if written is None else written
    return usage_of(read=read_, written=wrote, prices=prices, cached=min(cached, read_))
