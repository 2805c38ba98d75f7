"""Requests and answers of models in Pydantic AI, in the forms that Deedbook records."""

from collections.abc import Iterator
from typing import Any

from pydantic_ai.messages import (
    BaseToolCallPart,
    BaseToolReturnPart,
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)

from deedbook_guard import completions


def request_of(context: Any) -> dict[str, Any]:
    """Return the request of a ``ModelRequestContext``."""
    parameters, settings = context.model_request_parameters, context.model_settings or {}
    offered = [*parameters.function_tools, *parameters.output_tools]
    return completions.request(
        context.model.model_name,
        [*_instructions(parameters), *(each for message in context.messages for each in _messages_of(message))],
        [completions.tool_offer(tool.name, tool.description, tool.parameters_json_schema) for tool in offered],
        max_tokens=settings.get("max_tokens"),
        temperature=settings.get("temperature"),
    )


def response_of(response: ModelResponse) -> dict[str, Any]:
    """Return an answer; parts that are neither text nor tool calls (thinking, files) are left out."""
    usage = {"input_tokens": response.usage.input_tokens, "output_tokens": response.usage.output_tokens}
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    return completions.response(
        response.model_name, _text_of(response), _calls(calls), usage=usage, reason=response.finish_reason
    )


def _instructions(parameters: Any) -> Iterator[dict[str, Any]]:
    for part in parameters.instruction_parts or ():
        yield completions.message("system", part.content)


def _messages_of(message: ModelMessage) -> Iterator[dict[str, Any]]:
    if isinstance(message, ModelResponse):
        calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
        yield completions.message("assistant", _text_of(message), calls=_calls(calls))
        return
    for part in message.parts:
        if isinstance(part, BaseToolReturnPart):
            yield completions.message("tool", part.model_response_str(), call_id=part.tool_call_id)
        elif isinstance(part, RetryPromptPart) and part.tool_name:
            yield completions.message("tool", part.model_response(), call_id=part.tool_call_id)
        elif isinstance(part, SystemPromptPart | UserPromptPart):
            role = "system" if isinstance(part, SystemPromptPart) else "user"
            yield completions.message(role, part.content)
        elif hasattr(part, "model_response"):
            yield completions.message("user", part.model_response())


def _text_of(message: ModelResponse) -> str:
    return "\n".join(part.content for part in message.parts if isinstance(part, TextPart))


def _calls(parts: list[BaseToolCallPart]) -> list[dict[str, Any]]:
    return [
        completions.tool_call(part.tool_call_id, part.tool_name, part.args, number=number)
        for number, part in enumerate(parts, 1)
    ]
