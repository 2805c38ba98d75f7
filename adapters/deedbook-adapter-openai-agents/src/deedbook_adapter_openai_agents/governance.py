"""Governed copies of function tools, and the run hooks that stop everything else."""

import copy
import json
from collections.abc import Awaitable, Callable, Iterator
from inspect import isawaitable
from typing import Any, Final

import attrs
from agents import Agent, FunctionTool, RunHooks

from deedbook.format.errors import BindingError, fault
from deedbook_guard import CallDenied, Guard, Permit, ResultWithheld

from .arguments import Prepared, arguments_of, raising
from .models import GovernedHooks

_HOSTED: Final = frozenset(
    {"WebSearchTool", "FileSearchTool", "CodeInterpreterTool", "HostedMCPTool", "ImageGenerationTool", "ToolSearchTool"}
)
"""Tools that the provider runs: they never pass the program."""


class GovernedInvocation:
    """Invokes a function tool if the call is allowed; otherwise the model gets the reason as the tool's output.

    Judged are the arguments that the SDK validated, and the tool gets just these. If a run can pause, the SDK asks
    `needs_approval` before it invokes the tool; *pending* gets the calls that wait.
    """

    def __init__(self, guard: Guard, tool: FunctionTool, pending: dict[str, CallDenied]) -> None:
        self.guard = guard
        self._tool = tool
        self._arguments = arguments_of(tool)
        self._invoke: Callable[[Any, str], Awaitable[Any]] = tool.on_invoke_tool
        self._own_approval = tool.needs_approval
        self._pending = pending
        self._decisions: dict[str, _Decision] = {}

    async def __call__(self, context: Any, text: str) -> Any:
        """Judge, run and record one call."""
        call_id = getattr(context, "tool_call_id", "")
        self._pending.pop(call_id, None)
        args = _parse(text)
        if args is None:
            return "INTAKE_REFUSED: the arguments are no JSON object"
        try:
            decision = self._decided(call_id, args) or await self._decide(args)
        except _Invalid as invalid:
            return await raising(self._tool, invalid.cause)(context, text)
        if isinstance(decision.answer, CallDenied):
            return decision.answer.reason
        permit = decision.answer
        conversation = permit.conversation
        try:
            final = self._arguments.hand_over(permit, decision.prepared, context)
        except CallDenied as denied:
            return denied.reason
        try:
            value = await self._invoke(context, final)
        except BaseException as problem:
            conversation.fail(permit, problem)
            raise
        try:
            return await conversation.aafter(permit, value)
        except ResultWithheld as withheld:
            return f"{withheld.error.code}: {withheld.error}"

    async def needs_approval(self, context: Any, args: dict[str, Any], call_id: str) -> bool:
        """Decide the call; return whether a person must decide it. The decision is used when the tool is invoked."""
        own: Any = self._own_approval
        needed = own(context, args, call_id) if callable(own) else own
        if await needed if isawaitable(needed) else needed:
            return True
        if call_id in self._decisions:
            return False
        try:
            decision = await self._decide(args)
        except _Invalid:  # it is told when the tool is invoked
            return False
        if isinstance(decision.answer, CallDenied) and decision.answer.approval:
            self._pending[call_id] = decision.answer
            return True
        self._decisions[call_id] = decision
        return False

    async def _decide(self, args: dict[str, Any]) -> "_Decision":
        """Judge a call; raises `_Invalid` if the SDK does not accept its arguments."""
        try:
            prepared = self._arguments.prepare(args)
        except Exception as problem:
            raise _Invalid(problem) from problem
        try:
            answer: Permit | CallDenied = await self.guard.current.abefore(self._tool.name, prepared.form)
        except CallDenied as denied:
            answer = denied
        return _Decision(args, prepared, answer)

    def _decided(self, call_id: str, args: dict[str, Any]) -> "_Decision | None":
        """Return the decision of `needs_approval` about the same arguments."""
        found = self._decisions.pop(call_id, None)
        if found is None or found.args == args:
            return found
        if isinstance(found.answer, Permit):
            problem = ValueError("the arguments changed after the decision")
            found.answer.conversation.fail(found.answer, problem, cancelled=True)
        return None


class _Invalid(Exception):  # noqa: N818 - what the SDK says about arguments
    """The SDK does not accept the arguments; *cause* is what it raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@attrs.frozen
class _Decision:
    """The arguments as the model sent them, as the tool gets them, and the answer."""

    args: dict[str, Any]
    prepared: Prepared
    answer: Permit | CallDenied


class Governance(RunHooks[Any]):
    """Run hooks that stop a run before a local tool, or a request to a model, that is not governed.

    *pending* has, by call id, the calls for which a run was paused: each has the ``approval`` and the ``reason``.
    """

    def __init__(self, guard: Guard, *, pause: bool) -> None:
        self.pending: dict[str, CallDenied] = {}
        self._guard, self._pause = guard, pause

    def govern(self, agent: Any) -> None:
        """Give governed copies of their tools to *agent* and to all agents that can be reached from it."""
        for each in reachable_agents(agent):
            if each.mcp_servers:
                why = "it has MCP servers, whose tools are made while it runs; declare them under servers: in Deedbook"
                raise _refusal(each.name, why)
            each.tools = [self._govern_tool(each.name, tool) for tool in each.tools]
            each.hooks = self._governed_hooks(each)

    def _governed_hooks(self, agent: Agent[Any]) -> GovernedHooks:
        if not isinstance(agent.hooks, GovernedHooks):
            return GovernedHooks(self._guard, agent.hooks)
        if agent.hooks.guard is not self._guard:
            raise _refusal(agent.name, "it is governed by another guard")
        return agent.hooks

    def _govern_tool(self, agent: str, tool: Any) -> Any:
        if not isinstance(tool, FunctionTool):
            if type(tool).__name__ in _HOSTED:
                return tool
            raise _refusal(agent, f"its tool {type(tool).__name__} acts here and is no function tool")
        if isinstance(tool.on_invoke_tool, GovernedInvocation):
            if tool.on_invoke_tool.guard is not self._guard:
                raise _refusal(agent, f"its tool {tool.name} is governed by another guard")
            return tool
        made = copy.copy(tool)
        governed = GovernedInvocation(self._guard, tool, self.pending)
        made.on_invoke_tool = governed
        if self._pause:
            made.needs_approval = governed.needs_approval
        return made

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Stop the run before a tool that was added after `govern`."""
        if not isinstance(getattr(tool, "on_invoke_tool", None), GovernedInvocation):
            name = getattr(tool, "name", type(tool).__name__)
            raise _refusal(agent.name, f"its tool {name} is not governed; call govern again after a change of tools")

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]) -> None:
        """Stop the run before a request of an agent that was made after `govern`."""
        if not isinstance(agent.hooks, GovernedHooks):
            why = "its requests to models are not governed; call govern for an agent that is made while a run goes on"
            raise _refusal(agent.name, why)


def reachable_agents(agent: Any) -> Iterator[Agent[Any]]:
    """Yield *agent* and every agent that it uses as a tool or can hand over to; raises `BindingError`."""
    left, seen = [agent], list[Any]()
    while left:
        each = left.pop()
        if any(each is other for other in seen):
            continue
        seen.append(each)
        if not isinstance(each, Agent):
            raise _refusal(getattr(each, "name", type(each).__name__), "it is no agent of the SDK")
        yield each
        left += [tool._agent_instance for tool in each.tools if getattr(tool, "_agent_instance", None)]  # noqa: SLF001
        left += [_target(each.name, handoff) for handoff in each.handoffs]


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
