"""Requests and answers of models in Microsoft Agent Framework, in the forms that Deedbook records."""

from collections.abc import Iterable, Iterator
from typing import Any

from agent_framework import ChatContext, ChatResponse, Content, FunctionTool, Message

from deedbook_guard import completions


def request_of(context: ChatContext) -> dict[str, Any]:
    """Return the request of a call of a chat client."""
    options = context.options or {}
    instructions = options.get("instructions")
    given = [completions.message("system", instructions)] if instructions else []
    return completions.request(
        options.get("model") or getattr(context.client, "model", None),
        [*given, *(each for message in context.messages for each in _messages(message))],
        list(_offers(options.get("tools") or ())),
        max_tokens=options.get("max_tokens"),
        temperature=options.get("temperature"),
    )


def response_of(response: ChatResponse[Any]) -> dict[str, Any]:
    """Return an answer; contents that are neither text nor calls of functions are left out."""
    contents = [content for message in response.messages for content in message.contents]
    usage = response.usage_details or {}
    return completions.response(
        response.model,
        response.text,
        _calls(contents),
        usage={"input_tokens": usage.get("input_token_count"), "output_tokens": usage.get("output_token_count")},
        reason=response.finish_reason,
    )


def _messages(message: Message) -> Iterator[dict[str, Any]]:
    """Yield a message, and one for each result of a tool in it."""
    results = [content for content in message.contents if content.type == "function_result"]
    for content in results:
        said = content.exception or completions.text_of(content.items or content.result)
        yield completions.message("tool", said, call_id=content.call_id)
    others = [each for each in message.contents if each.type not in ("function_result", "function_call")]
    if others or not results:
        role = str(message.role)
        known = role if role in ("system", "user", "assistant", "tool") else "user"
        yield completions.message(known, others, calls=_calls(message.contents))


def _calls(contents: Iterable[Content]) -> list[dict[str, Any]]:
    found = [content for content in contents if content.type == "function_call"]
    return [
        completions.tool_call(content.call_id, content.name or "", content.arguments, number=number)
        for number, content in enumerate(found, 1)
    ]


def _offers(tools: Any) -> Iterator[dict[str, Any]]:
    for tool in tools if isinstance(tools, list | tuple) else [tools]:
        if isinstance(tool, FunctionTool):
            yield completions.tool_offer(tool.name, tool.description, tool.parameters())
        else:
            kind = tool.get("type") if isinstance(tool, dict) else None
            yield completions.tool_offer(str(getattr(tool, "name", None) or kind or type(tool).__name__))
