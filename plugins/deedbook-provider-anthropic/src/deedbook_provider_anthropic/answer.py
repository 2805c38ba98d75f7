"""From a message of the API to a response."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object
from deedbook_provider_http.names import Names
from deedbook_provider_http.reply import (
    calls_of,
    count,
    counts_of,
    objects,
    reason_of,
    response,
    text_of,
    tool_call,
    unclear,
    usage_of,
)

from . import thoughts

_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "safety",
}


def read(message: Object, request: Object, names: Names, prices: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the response that a *message*, as parsed from JSON, is to *request*."""
    reason = reason_of(message.get("stop_reason"), "stop_reason", _REASONS)
    texts, uses = [], []
    blocks = objects(message.get("content"), "the message's content is no list of blocks")
    blocks = [block for block in blocks if block.get("type") != "text" or block.get("text")]
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(text_of(block.get("text"), "the text of a block is no text"))
        elif kind == "tool_use":
            uses.append(block)
        elif kind not in thoughts.KINDS:
            unclear(f"the message holds a block of the type {str(kind)[:40]!r}, which was not asked for")

    def call(use: Object, number: int) -> Object:
        return tool_call(request, names, use.get("name"), use.get("input"), given=use.get("id"), number=number)

    text = "".join(texts)
    made = response(
        request,
        text=text,
        calls=calls_of(reason, uses, call),
        reason=reason,
        usage=_usage(message, request, text, prices),
        model=message.get("model"),
    )
    return {**made, "tool_calls": thoughts.add_layout(made["tool_calls"], blocks)}


def _usage(message: Object, request: Object, text: str, prices: Mapping[str, Any] | None) -> Object:
    """Return what was used; the API counts what its cache gave and took apart from the rest."""
    told = counts_of(message, "usage")
    fresh, written = count(told, "input_tokens"), count(told, "output_tokens")
    cached = count(told, "cache_read_input_tokens") or 0
    kept = count(told, "cache_creation_input_tokens") or 0
    return usage_of(
        request,
        text,
        read=None if fresh is None else fresh + cached + kept,
        written=written,
        prices=prices,
        cached=0 if fresh is None else cached,
        kept=0 if fresh is None else kept,
    )
