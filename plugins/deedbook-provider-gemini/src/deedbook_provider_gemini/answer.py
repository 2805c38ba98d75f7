"""From an answer of the API to a response."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object
from deedbook_provider_http import Trouble
from deedbook_provider_http.names import Names
from deedbook_provider_http.reply import (
    calls_of,
    count,
    counts_of,
    obj,
    objects,
    reason_of,
    response,
    text_of,
    tool_call,
    unclear,
    usage_of,
)

from . import signatures

_REASONS: Final = {
    "STOP": "stop",
    "MAX_TOKENS": "max_tokens",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "MODEL_ARMOR"), "safety"
    ),
}
_MODEL_FAILED: Final = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"})


def read(answer: Object, request: Object, names: Names, prices: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the response that an *answer*, as parsed from JSON, is to *request*."""
    reason, parts = _outcome(answer)
    texts, functions = [], []
    for part in parts:
        if "functionCall" in part:
            functions.append(part)
        elif "text" in part:
            said = text_of(part["text"], "a part's text is no text")
            texts += [] if part.get("thought") else [said]
        elif part.keys() - {"thought", "thoughtSignature"}:
            unclear(f"the answer holds a part of the kind {min(part)[:40]!r}, which was not asked for")
    before = sum(len(said.get("tool_calls", ())) for said in request["messages"])

    def call(part: Object, number: int) -> Object:
        function = obj(part["functionCall"], "a tool call is no JSON object")
        given = signatures.build_id(before + number, function.get("id"), part.get("thoughtSignature"))
        return tool_call(request, names, function.get("name"), function.get("args"), given=given, number=number)

    text = "".join(texts)
    return response(
        request,
        text=text,
        calls=calls_of(reason, functions, call),
        reason=reason,
        usage=_usage(answer, request, text, prices),
        model=answer.get("modelVersion"),
    )


def _outcome(answer: Object) -> tuple[str, list[dict[str, Any]]]:
    """Return why the model stopped, and the parts of what it said."""
    feedback = answer.get("promptFeedback")
    listed = answer.get("candidates") or []
    candidates = objects(listed, "the candidates are no list of objects")
    if not candidates:
        if isinstance(feedback, Mapping) and feedback.get("blockReason"):
            return "safety", []
        unclear("the answer has no candidates")
    told = candidates[0].get("finishReason")
    if isinstance(told, str) and told in _MODEL_FAILED:
        raise Trouble(f"the model made a call that the API could not read ({told}); ask again", retryable=True)
    reason = reason_of(told, "finishReason", _REASONS)
    content = candidates[0].get("content")
    content = {} if content is None else obj(content, "the content is no JSON object")
    return reason, objects(content.get("parts") or [], "the parts are no list of objects")


def _usage(answer: Object, request: Object, text: str, prices: Mapping[str, Any] | None) -> Object:
    """Return what was used; thoughts are paid for as what is written."""
    told = counts_of(answer, "usageMetadata")
    asked, written = count(told, "promptTokenCount"), count(told, "candidatesTokenCount")
    thoughts, cached = count(told, "thoughtsTokenCount") or 0, count(told, "cachedContentTokenCount") or 0
    if thoughts:
        written = (written or 0) + thoughts
    return usage_of(request, text, read=asked, written=written, prices=prices, cached=cached)
