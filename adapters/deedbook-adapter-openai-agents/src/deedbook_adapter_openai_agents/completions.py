"""Requests and answers of models in the OpenAI Agents SDK, in the forms that Deedbook records."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agents import Agent, Handoff

from deedbook_guard import completions

_ROLES: Final = {"developer": "system", "system": "system", "assistant": "assistant"}


def request_of(agent: Agent[Any], instructions: str | None, items: list[Any]) -> dict[str, Any]:
    """Return a request as hooks see it: the tools and settings are those that the agent declares."""
    given = [completions.message("system", instructions)] if instructions else []
    return completions.request(
        _model_name(agent),
        [*given, *map(_message, items)],
        list(_offers(agent)),
        max_tokens=agent.model_settings.max_tokens,
        temperature=agent.model_settings.temperature,
    )


def response_of(agent: Agent[Any], response: Any) -> dict[str, Any]:
    """Return an answer; items that are neither text nor calls of function tools are left out."""
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    refused = [part.refusal for part in parts if part.type == "refusal"]
    calls = [item for item in response.output if item.type == "function_call"]
    return completions.response(
        _model_name(agent),
        "\n".join([*(part.text for part in parts if part.type == "output_text"), *refused]),
        [
            completions.tool_call(call.call_id, call.name, call.arguments, number=number)
            for number, call in enumerate(calls, 1)
        ],
        usage={"input_tokens": response.usage.input_tokens, "output_tokens": response.usage.output_tokens},
        reason="refusal" if refused else None,
    )


def _model_name(agent: Agent[Any]) -> str | None:
    model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", None)
    return model if isinstance(model, str) else None


def _message(item: Any) -> dict[str, Any]:
    read = item if isinstance(item, Mapping) else item.model_dump()
    kind = read.get("type")
    if kind == "function_call":
        call = completions.tool_call(read.get("call_id"), read.get("name", ""), read.get("arguments"))
        return completions.message("assistant", "", calls=[call])
    if kind == "function_call_output":
        return completions.message("tool", read.get("output"), call_id=read.get("call_id"))
    if "role" in read:
        return completions.message(_ROLES.get(read["role"], "user"), read.get("content"))
    return completions.message("assistant", f"[{kind}]")


def _offers(agent: Agent[Any]) -> Iterator[dict[str, Any]]:
    for tool in agent.tools:
        about = getattr(tool, "description", None), getattr(tool, "params_json_schema", None)
        yield completions.tool_offer(tool.name, *about)
    for handoff in agent.handoffs:
        name = handoff.tool_name if isinstance(handoff, Handoff) else Handoff.default_tool_name(handoff)
        yield completions.tool_offer(name)
