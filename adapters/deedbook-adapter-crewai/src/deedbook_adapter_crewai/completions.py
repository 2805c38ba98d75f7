"""Requests and answers of models in CrewAI, in the forms that Deedbook records."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from crewai.types.usage_metrics import UsageMetrics
from crewai.utilities.agent_utils import extract_tool_call_info
from pydantic import BaseModel

from deedbook_guard import completions

_ROLES: Final = ("system", "user", "assistant", "tool")


def request_of(model: Any, messages: Any, tools: Any = None) -> dict[str, Any]:
    """Return a request as the model gets it."""
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    return completions.request(
        getattr(model, "model", None),
        [_message(each) for each in given],
        [_offer(each) for each in tools or ()],
        max_tokens=getattr(model, "max_tokens", None),
        temperature=getattr(model, "temperature", None),
    )


def response_of(model: Any, answer: Any, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer: text, tool calls or a structured value. *shown* are the parts of the framework's event."""
    calls = answer if isinstance(answer, list) else []
    text = answer.model_dump_json() if isinstance(answer, BaseModel) else answer
    metrics = UsageMetrics.from_provider_dict(shown.get("usage") or {})
    return completions.response(
        model.model,
        "" if calls else completions.text_of(text),
        _calls(calls),
        usage={
            "input_tokens": metrics and metrics.prompt_tokens,
            "output_tokens": metrics and metrics.completion_tokens,
        },
        reason=shown.get("finish_reason"),
    )


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    return completions.message(
        role if role in _ROLES else "user",
        message.get("content"),
        calls=_calls(message.get("tool_calls") or ()),
        call_id=message.get("tool_call_id"),
    )


def _calls(calls: Iterable[Any]) -> list[dict[str, Any]]:
    found = [info for call in calls if (info := extract_tool_call_info(call)) is not None]
    return [
        completions.tool_call(call_id, name, args, number=number)
        for number, (call_id, name, args) in enumerate(found, 1)
    ]


def _offer(tool: Any) -> dict[str, Any]:
    about = tool.get("function", tool) if isinstance(tool, Mapping) else {}
    return completions.tool_offer(
        about.get("name") or type(tool).__name__, about.get("description"), about.get("parameters")
    )
