"""The capability of Pydantic AI that takes each tool call and each request to a model through the guard."""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, SkipToolExecution
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from deedbook_guard import CallDenied, Guard, Permit, ResultWithheld
from deedbook_guard.arguments import argument_form, is_judged, private_copies, require_judged

from .arguments import Run, names_of, revalidate, with_gate
from .completions import request_of, response_of

Perform: TypeAlias = Callable[[dict[str, Any]], Awaitable[Any]]
"""Runs a tool with these arguments."""


class ToolGate:
    """One call of a tool that is under way: what was judged, and whether a toolset has begun it (*begun*).

    *refusal* is why the tool did not run although the call was allowed: something changed its arguments.
    """

    def __init__(self, guard: Guard, name: str, names: Mapping[str, str]) -> None:
        self.guard, self.name, self.begun = guard, name, False
        self.refusal: CallDenied | None = None
        self._names = names
        self._permit: Permit | None = None

    def form(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as they are judged and recorded."""
        return argument_form(args, self._names)

    async def judge(self, args: Mapping[str, Any]) -> Permit:
        """Judge the call; raises `CallDenied`."""
        self._permit = await self.guard.current.abefore(self.name, self.form(args))
        return self._permit

    def check(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments to use; raises `SkipToolExecution` unless they are those that were judged."""
        assert self._permit is not None
        form = self.form(args)
        try:
            require_judged(self._permit, form)
        except CallDenied as denied:
            self.refusal = denied
            raise SkipToolExecution(denied.reason) from denied
        return private_copies(args, form, self._names)


_GATE: Final[ContextVar[ToolGate | None]] = ContextVar("deedbook_pydantic_ai_call", default=None)


@dataclass
class GovernedToolset(WrapperToolset[Any]):
    """The tools of a run, behind all other capabilities."""

    governance: "Governance"

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run the tool that was judged; one that something else asks for is a call of its own."""
        gate = _GATE.get()
        if gate is None or gate.begun or gate.name != name or not self.governance.owns(gate):

            async def run(final: dict[str, Any]) -> Any:
                return await self.call_tool(name, final, ctx, tool)

            return await self.governance.perform(name, tool_args, ctx, tool, run)
        gate.begun = True
        ran = False

        async def around(args: dict[str, Any], inner: RunContext[Any], function: Run) -> Any:
            nonlocal ran
            if ran:  # a toolset behind this one runs it once more

                async def run_again(final: dict[str, Any]) -> Any:
                    return await function(final, inner)

                return await self.governance.perform(name, args, ctx, tool, run_again)
            ran = True
            return await function(gate.check(args), inner)

        gated = with_gate(tool, around)
        if gated is not None:
            return await self.wrapped.call_tool(name, tool_args, ctx, gated)
        return await self.wrapped.call_tool(name, gate.check(tool_args), ctx, tool)


class Governance(AbstractCapability[Any]):
    """Judges each tool call with its validated arguments and each request to a model, and records the outcome of both.

    Each attempt is a call of its own. Directly before the tool runs, what it gets is compared with what was judged.
    """

    def __init__(self, guard: Guard, *, pause: bool) -> None:
        self._guard, self._pause = guard, pause

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return ``None``: an agent's spec cannot name a guard."""
        return None

    def get_ordering(self) -> CapabilityOrdering:
        """Return the innermost position: no other capability changes the arguments after the decision."""
        return CapabilityOrdering(position="innermost")

    def owns(self, gate: ToolGate) -> bool:
        """Return whether a call is one of this guard."""
        return gate.guard is self._guard

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Return a toolset that compares what reaches a tool with what was judged."""
        return GovernedToolset(toolset, self)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any], handler: Any
    ) -> Any:
        """Run the tool if the call is allowed; otherwise tell the model why, or pause the run."""
        known = ctx.tool_manager.tools if ctx.tool_manager is not None else None
        return await self.perform(call.tool_name, args, ctx, (known or {}).get(call.tool_name), handler)

    async def perform(
        self, name: str, args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any] | None, run: Perform
    ) -> Any:
        """Judge and record one call; *run* gets the arguments to use."""
        gate = ToolGate(self._guard, name, names_of(tool))
        try:
            permit = await gate.judge(args)
            final = args if is_judged(permit, gate.form(args)) else await revalidate(permit, args, tool, ctx)
        except CallDenied as denied:
            raise self._refusal(denied) from denied
        entered = _GATE.set(gate)
        try:
            value = await run(final)
        except BaseException as problem:
            if gate.refusal is None:
                permit.conversation.fail(
                    permit, problem, cancelled=isinstance(problem, ApprovalRequired | CallDeferred)
                )
                raise
            if not isinstance(problem, Exception):
                raise
        finally:
            _GATE.reset(entered)
        if gate.refusal is not None:  # the tool did not run; something on the way may have put an answer in its place
            raise self._refusal(gate.refusal)
        try:
            return await permit.conversation.aafter(permit, value)
        except ResultWithheld as withheld:
            raise SkipToolExecution(f"{withheld.error.code}: {withheld.error}") from withheld

    def _refusal(self, denied: CallDenied) -> Exception:
        """Return what pauses the run, or tells the model why the tool does not run."""
        if self._pause and denied.approval:
            return ApprovalRequired(metadata={"approval": denied.approval, "reason": denied.reason})
        return SkipToolExecution(denied.reason)

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: Any, handler: Any) -> Any:
        """Ask the model if the request is allowed; otherwise `CallDenied` stops the run."""
        conversation = self._guard.current
        permit = await conversation.abefore_model(request_of(request_context))
        try:
            response = await handler(request_context)
            recorded = response_of(response)
        except BaseException as problem:
            conversation.fail(permit, problem)
            raise
        await conversation.aafter_model(permit, recorded)
        return response
