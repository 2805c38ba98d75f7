"""Governed copies of function tools, and the hooks that stop every other local tool."""

import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from agents import Agent, FunctionTool, RunHooks

from deedbook.format.errors import BindingError, fault
from deedbook_guard import CallDenied, Guard, ResultWithheld

_HOSTED: Final = frozenset(
    {"WebSearchTool", "FileSearchTool", "CodeInterpreterTool", "HostedMCPTool", "ImageGenerationTool", "ToolSearchTool"}
)
"""Tools that the provider runs: they never pass the program."""


class GovernedInvocation:
    """Invokes a function tool if the call is allowed; otherwise the model gets the reason as the tool's output."""

    def __init__(self, guard: Guard, tool: FunctionTool) -> None:
        self.guard = guard
        self._name = tool.name
        self._invoke: Callable[[Any, str], Awaitable[Any]] = tool.on_invoke_tool

    async def __call__(self, context: Any, text: str) -> Any:
        """Judge, run and record one call."""
        conversation = self.guard.current
        args = _parse(text)
        if args is None:
            return "INTAKE_REFUSED: the arguments are no JSON object"
        try:
            permit = await conversation.abefore(self._name, args)
        except CallDenied as denied:
            return denied.reason
        try:  # what runs is what was judged: the framework reads duplicate keys and defaults its own way
            value = await self._invoke(context, json.dumps(permit.args))
        except BaseException as problem:
            conversation.fail(permit, problem)
            raise
        try:
            return await conversation.aafter(permit, value)
        except ResultWithheld as withheld:
            return f"{withheld.error.code}: {withheld.error}"


class Governance(RunHooks[Any]):
    """Run hooks that stop a run before a local tool that is not governed, and record the usage of models."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def govern(self, agent: Any) -> None:
        """Give governed copies of their tools to *agent* and to all agents that can be reached from it."""
        left, seen = [agent], list[Any]()
        while left:
            each = left.pop()
            if any(each is other for other in seen):
                continue
            seen.append(each)
            if not isinstance(each, Agent):
                raise _refusal(getattr(each, "name", type(each).__name__), "it is no agent of the SDK")
            if each.mcp_servers:
                why = "it has MCP servers, whose tools are made while it runs; declare them under servers: in Deedbook"
                raise _refusal(each.name, why)
            each.tools = [self._governed(each.name, tool) for tool in each.tools]
            left += [tool._agent_instance for tool in each.tools if getattr(tool, "_agent_instance", None)]  # noqa: SLF001
            left += [_target(each.name, handoff) for handoff in each.handoffs]

    def _governed(self, agent: str, tool: Any) -> Any:
        if not isinstance(tool, FunctionTool):
            if type(tool).__name__ in _HOSTED:
                return tool
            raise _refusal(agent, f"its tool {type(tool).__name__} acts here and is no function tool")
        if isinstance(tool.on_invoke_tool, GovernedInvocation):
            if tool.on_invoke_tool.guard is not self._guard:
                raise _refusal(agent, f"its tool {tool.name} is governed by another guard")
            return tool
        made = copy.copy(tool)
        made.on_invoke_tool = GovernedInvocation(self._guard, tool)
        return made

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Stop the run before a tool that was added after `govern`."""
        if not isinstance(getattr(tool, "on_invoke_tool", None), GovernedInvocation):
            name = getattr(tool, "name", type(tool).__name__)
            raise _refusal(agent.name, f"its tool {name} is not governed; call govern again after a change of tools")

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Record the usage of an answer, and which of the provider's own tools it used."""
        usage = response.usage
        tokens = {name: getattr(usage, name) for name in ("input_tokens", "output_tokens", "total_tokens")}
        conversation = self._guard.current
        conversation.note("ModelResponse", {"agent": agent.name, "usage": tokens})
        for item in response.output:
            kind = getattr(item, "type", "")
            if kind.endswith("_call") and kind != "function_call":
                conversation.note("HostedTool", {"agent": agent.name, "type": kind})


def _target(agent: str, handoff: Any) -> Any:
    """Return the agent that a handoff leads to."""
    if isinstance(handoff, Agent):
        return handoff
    reference = getattr(handoff, "_agent_ref", None)
    target = reference() if reference is not None else None
    if target is None:
        raise _refusal(agent, f"its handoff {getattr(handoff, 'tool_name', '?')} makes its agent while it runs")
    return target


def _parse(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _refusal(agent: str, why: str) -> BindingError:
    return BindingError(fault("BINDING_INVALID", f"agent {agent!r} cannot be governed: {why}"))
