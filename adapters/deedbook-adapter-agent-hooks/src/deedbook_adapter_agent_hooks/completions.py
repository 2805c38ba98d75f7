"""Requests and answers of models in the contexts of agent-hooks, in the forms that Deedbook records."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook_guard import completions

_USAGE: Final = {
    "input_tokens": ("prompt_tokens", "input_token_count", "input_tokens"),
    "output_tokens": ("completion_tokens", "output_token_count", "output_tokens"),
}
"""The names that hosts give the counts; the first ones are those of the contract."""
_TOOL_PARTS: Final = ("function_call", "function_result")


def request_of(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request of a ``pre_model_call``."""
    model = context["model"]
    limits = model.get("params") or {}
    return completions.request(
        model["id"],
        [each for message in context["messages"] for each in _messages(message)],
        [
            completions.tool_offer(each["name"], each.get("description"), each.get("schema"))
            for each in context.get("tools") or ()
        ],
        max_tokens=limits.get("max_tokens"),
        temperature=limits.get("temperature"),
    )


def response_of(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a ``post_model_call``."""
    response, usage = context["response"], context.get("usage") or {}
    calls = [
        completions.tool_call(each.get("id"), each["name"], each["args"], number=number)
        for number, each in enumerate(response["tool_calls"], 1)
    ]
    counts = {name: next((usage[each] for each in names if each in usage), None) for name, names in _USAGE.items()}
    return completions.response(
        context["model"]["id"], text_of(response["content"]), calls, usage=counts, reason=response["finish_reason"]
    )


def text_of(content: Any) -> str:
    """Return the text of a content: text, parts, or messages with parts."""
    if isinstance(content, list):
        return completions.text_of(list(_parts(content)))
    return completions.text_of(content)


def reply_text(content: Any) -> str:
    """Return the text of an agent's answer, without the calls of tools that a host shows in it."""
    if not isinstance(content, list):
        return text_of(content)
    return completions.text_of([each for each in _parts(content) if _kind(each) not in _TOOL_PARTS])


def _parts(content: list[Any]) -> Iterator[Any]:
    """Yield the parts of a list, and those of the messages in it."""
    for each in content:
        inner = each["content"] if isinstance(each, Mapping) and "content" in each else each
        if isinstance(inner, list):
            yield from _parts(inner)
        elif inner is not None:
            yield inner


def _messages(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a message, and one for each result of a tool in it."""
    content = message["content"]
    parts = content if isinstance(content, list) else [content]
    results = [each for each in parts if _kind(each) == "function_result"]
    calls = [each for each in parts if _kind(each) == "function_call"]
    for each in results:
        said = each.get("exception") or completions.text_of(each.get("result"))
        yield completions.message("tool", said, call_id=each.get("call_id"))
    others = [each for each in parts if _kind(each) not in _TOOL_PARTS]
    if others or not results:
        role = message["role"] if message["role"] in ("system", "user", "assistant", "tool") else "user"
        made = [
            completions.tool_call(each.get("call_id"), each.get("name") or "", each.get("arguments"), number=number)
            for number, each in enumerate(calls, 1)
        ]
        said = text_of(others if isinstance(content, list) else content)
        yield completions.message(role, said, calls=made, call_id=message.get("tool_call_id"))


def _kind(part: Any) -> Any:
    return part.get("type") if isinstance(part, Mapping) else None
