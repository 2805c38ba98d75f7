"""From an answer of Ollama to a response."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object
from deedbook_provider_http.names import Names
from deedbook_provider_http.reply import (
    calls_of,
    count,
    describe,
    obj,
    objects,
    reason_of,
    response,
    text_of,
    tool_call,
    unclear,
    usage_of,
)

_REASONS: Final = {"stop": "stop", "length": "max_tokens"}
"""Ollama has no word for a stop of safety: a model that refuses says so in its text."""


def read(answer: Object, request: Object, names: Names, prices: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the response that an *answer*, as parsed from JSON, is to *request*."""
    if answer.get("done") is not True:
        unclear(f"{describe(answer.get('done'), 'done')}; expected true")
    reason = reason_of(answer.get("done_reason", "stop"), "done_reason", _REASONS)  # servers before 0.3.10 tell none
    message = obj(answer.get("message"), "the answer has no message")
    text = text_of(message.get("content"), "the message's content is no text")
    functions = objects(message.get("tool_calls") or [], "tool_calls is no list of objects")

    def call(item: Object, number: int) -> Object:
        function = obj(item.get("function"), "a tool call names no function")
        name, args = function.get("name"), function.get("arguments")
        return tool_call(request, names, name, args, given=item.get("id"), number=number)

    asked, written = count(answer, "prompt_eval_count"), count(answer, "eval_count")
    return response(
        request,
        text=text,
        calls=calls_of(reason, functions, call),
        reason=reason,
        usage=usage_of(request, text, read=asked, written=written, prices=prices),
        model=answer.get("model"),
    )
