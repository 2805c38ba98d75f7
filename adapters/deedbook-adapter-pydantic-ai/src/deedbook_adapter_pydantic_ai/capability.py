"""The capability of Pydantic AI that takes each tool call and each request to a model through the guard."""

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, SkipToolExecution
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition

from deedbook_guard import CallDenied, Guard, ResultWithheld

from .completions import request_of, response_of


class Governance(AbstractCapability[Any]):
    """Judges each tool call with its final arguments and each request to a model, and records the outcome of both.

    Each attempt is a call of its own.
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

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any], handler: Any
    ) -> Any:
        """Run the tool if the call is allowed; otherwise tell the model why, or pause the run."""
        conversation = self._guard.current
        try:
            permit = await conversation.abefore(call.tool_name, args)
        except CallDenied as denied:
            if self._pause and denied.approval:
                raise ApprovalRequired(metadata={"approval": denied.approval, "reason": denied.reason}) from denied
            raise SkipToolExecution(denied.reason) from denied
        try:
            value = await handler(permit.args)
        except BaseException as problem:
            conversation.fail(permit, problem, cancelled=isinstance(problem, ApprovalRequired | CallDeferred))
            raise
        try:
            return await conversation.aafter(permit, value)
        except ResultWithheld as withheld:
            raise SkipToolExecution(f"{withheld.error.code}: {withheld.error}") from withheld

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
