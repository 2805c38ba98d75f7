"""Requests and answers of models in LangChain, in the forms that Deedbook records."""

from typing import Any, Final

from langchain.agents.middleware import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain.messages import AIMessage, ToolMessage

from deedbook_guard import completions

from .offers import ToolOffers

_ROLES: Final = {"human": "user", "system": "system", "ai": "assistant", "tool": "tool"}


def request_of(request: ModelRequest[Any], offers: ToolOffers) -> dict[str, Any]:
    """Return a request; the tool of a structured answer is not shown to middleware, so it is not in it."""
    given = [request.system_message] if request.system_message else []
    settings = request.model_settings
    return completions.request(
        settings.get("model") or _read(request.model, "model_name", "model"),
        [_message(each) for each in (*given, *request.messages)],
        list(map(offers.describe, request.tools)),
        max_tokens=settings.get("max_tokens", _read(request.model, "max_tokens")),
        temperature=settings.get("temperature", _read(request.model, "temperature")),
    )


def response_of(answer: Any) -> dict[str, Any]:
    """Return an answer: the message of the model in what the handler returned."""
    if isinstance(answer, ExtendedModelResponse):
        answer = answer.model_response
    found = answer.result if isinstance(answer, ModelResponse) else [answer]
    said = next((each for each in found if isinstance(each, AIMessage)), None) or AIMessage("")
    about = said.response_metadata
    return completions.response(
        about.get("model_name") or about.get("model"),
        str(said.text),
        _calls(said),
        usage=said.usage_metadata,
        reason=about.get("finish_reason") or about.get("stop_reason"),
    )


def _message(message: Any) -> dict[str, Any]:
    if isinstance(message, AIMessage):
        return completions.message("assistant", str(message.text), calls=_calls(message))
    call_id = message.tool_call_id if isinstance(message, ToolMessage) else None
    return completions.message(_ROLES.get(message.type, "user"), message.content, call_id=call_id)


def _calls(message: AIMessage) -> list[dict[str, Any]]:
    found = [*message.tool_calls, *message.invalid_tool_calls]
    return [
        completions.tool_call(call["id"], call["name"] or "", call["args"], number=number)
        for number, call in enumerate(found, 1)
    ]


def _read(model: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(model, name, None)) is not None), None)
