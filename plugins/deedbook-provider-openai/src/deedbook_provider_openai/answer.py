"""From a ``chat.completion`` to ``completion_response_v2``; whatever is unclear is a `Trouble`, never a guess."""

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from deedbook import IntakeError, Object, parse

from .names import Names
from .trouble import Trouble

_REASONS: Final = {
    "stop": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "safety",
}
_FENCED: Final = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL | re.IGNORECASE)
_BYTES_PER_TOKEN: Final = 4


def read(completion: Any, request: Object, names: Names, prices: Mapping[str, float] | None) -> dict[str, Any]:
    """Return the response that a *completion*, as parsed from JSON, is to *request*."""
    choice = _choice(completion)
    message = _object(choice.get("message"), "the choice has no message")
    refusal = _text(message, "refusal")
    text, calls = _text(message, "content"), []
    reason = _reason(choice, refusal)
    if reason == "max_tokens" and message.get("tool_calls"):
        _unclear("the answer was cut off in a tool call, at the limit of tokens; raise max_output_tokens")
    if reason not in ("max_tokens", "safety"):
        calls = _calls(message, request, names)
        reason = "tool_use" if calls else reason
    if reason == "tool_use" and not calls:
        _unclear("the answer ends for tool calls and holds none")
    if request.get("response_schema"):
        text = _unfenced(text)
    model = completion.get("model")
    return {
        "text": refusal or text,
        "tool_calls": calls,
        "finish_reason": reason,
        "usage": _usage(completion, request, text, prices),
        "model": model if isinstance(model, str) and model else request["model"],
        "schema_version": "v2",
    }


def _choice(completion: Any) -> dict[str, Any]:
    choices = _object(completion, "the answer is no JSON object").get("choices")
    if not isinstance(choices, list) or not choices:
        _unclear("the answer has no choices")
    return _object(choices[0], "the choice is no JSON object")


def _reason(choice: Mapping[str, Any], refusal: str) -> str:
    told = choice.get("finish_reason")
    if refusal:
        return "safety"
    if not isinstance(told, str) or told not in _REASONS:
        _unclear(f"the answer has the finish_reason {str(told)[:40]!r}; known are {', '.join(_REASONS)}")
    return _REASONS[told]


def _calls(message: Mapping[str, Any], request: Object, names: Names) -> list[dict[str, Any]]:
    listed = message.get("tool_calls") or []
    if not isinstance(listed, list):
        _unclear("tool_calls is no list")
    before = sum(len(said.get("tool_calls", ())) for said in request["messages"])
    calls = [_call(item, names, before + number) for number, item in enumerate(listed, 1)]
    if len({call["id"] for call in calls}) < len(calls):
        _unclear("two tool calls have the same id")
    return calls


def _call(item: Any, names: Names, number: int) -> dict[str, Any]:
    call = _object(item, "a tool call is no JSON object")
    if call.get("type", "function") not in ("function", None):
        _unclear(f"a tool call of the type {str(call['type'])[:40]!r}; only functions were offered")
    function = _object(call.get("function"), "a tool call names no function")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        _unclear("a tool call names no function")
    given = call.get("id")
    return {
        "id": given if isinstance(given, str) and given else f"call_{number}",
        "name": names.meant(name),
        "args": _arguments(function.get("arguments"), name),
    }


def _arguments(told: Any, name: str) -> dict[str, Any]:
    """Return a call's arguments; nothing at all stands for none, as some servers write it."""
    if told is None or told == "":
        return {}
    try:
        found = parse(told) if isinstance(told, str) else told
    except IntakeError as problem:
        why = f"the model's call of {name[:80]} has arguments that are refused: {problem}"
        raise Trouble(why, retryable=True, code=problem.error.code) from None
    return _object(found, f"the model's call of {name[:80]} has arguments that are no JSON object")


def _usage(completion: Object, request: Object, text: str, prices: Mapping[str, float] | None) -> dict[str, Any]:
    """Return what was used. An endpoint that does not count gets an estimate, so that budgets still bind."""
    told = completion.get("usage")
    told = told if isinstance(told, Mapping) else {}
    asked = sum(len(message["content"].encode()) for message in request["messages"])
    read_, written = _count(told, "prompt_tokens", asked), _count(told, "completion_tokens", len(text.encode()))
    usage: dict[str, Any] = {"input_tokens": read_, "output_tokens": written}
    if prices is None:
        return usage
    details = told.get("prompt_tokens_details")
    cached = min(read_, _count(details, "cached_tokens", 0)) if isinstance(details, Mapping) else 0
    fresh = prices["input_per_million"]
    cost = (read_ - cached) * fresh + cached * prices.get("cached_input_per_million", fresh)
    return {**usage, "cost_usd": round((cost + written * prices["output_per_million"]) / 1_000_000, 9)}


def _count(told: Mapping[str, Any], name: str, size: int) -> int:
    value = told.get(name)
    return value if type(value) is int and value >= 0 else -(-size // _BYTES_PER_TOKEN)


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    if value is not None and not isinstance(value, str):
        _unclear(f"the message's {name} is no text")
    return value or ""


def _unfenced(text: str) -> str:
    """Return the inside of a code fence that is all of *text*."""
    found = _FENCED.fullmatch(text)
    return found[1] if found and "```" not in found[1] else text


def _object(value: Any, why: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _unclear(why)
    return value


def _unclear(why: str) -> NoReturn:
    raise Trouble(f"the endpoint's answer is not what the protocol says: {why}", retryable=True)
