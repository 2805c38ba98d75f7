"""The middleware of LangChain that takes each tool call and each request to a model through the guard."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from deedbook_guard import CallDenied, Guard, Permit, ResultWithheld

from .completions import request_of, response_of
from .gate import ToolGate
from .governed import governed_tool
from .offers import ToolOffers


class Governance(AgentMiddleware):
    """Judges each tool call with the arguments that the tool gets, and each request to a model; records both outcomes.

    Each attempt is a call of its own.
    """

    def __init__(self, guard: Guard, *, pause: bool) -> None:
        super().__init__()
        self._guard, self._pause = guard, pause
        self._offers = ToolOffers()

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Let the tool judge itself when it runs; if it is refused, tell the model why, or pause the run."""
        if request.tool is None:
            return _unknown(request.tool_call)
        gate = ToolGate(self._guard.current, request.tool, request.tool_call)
        try:
            answer = handler(request.override(tool=governed_tool(request.tool, gate)))
        except Exception:
            if gate.refusal is None:
                raise
            answer = None
        return gate.answer(answer) if gate.refusal is None else self._refuse(request.tool_call, gate.refusal)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Act like `wrap_tool_call`, from a coroutine."""
        if request.tool is None:
            return _unknown(request.tool_call)
        gate = ToolGate(self._guard.current, request.tool, request.tool_call)
        try:
            answer = await handler(request.override(tool=governed_tool(request.tool, gate)))
        except Exception:
            if gate.refusal is None:
                raise
            answer = None
        return gate.answer(answer) if gate.refusal is None else self._refuse(request.tool_call, gate.refusal)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Ask the model if the request is allowed; otherwise `CallDenied` stops the run, or the run pauses."""
        conversation = self._guard.current
        try:
            permit = conversation.before_model(request_of(request, self._offers))
        except CallDenied as denied:
            self._await_person(denied, "model")
            raise
        try:
            answer = handler(request)
            recorded = response_of(answer)
        except BaseException as problem:
            _record_exception(permit, problem)
            raise
        conversation.after_model(permit, recorded)
        return answer

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Act like `wrap_model_call`, from a coroutine."""
        conversation = self._guard.current
        try:
            permit = await conversation.abefore_model(request_of(request, self._offers))
        except CallDenied as denied:
            self._await_person(denied, "model")
            raise
        try:
            answer = await handler(request)
            recorded = response_of(answer)
        except BaseException as problem:
            _record_exception(permit, problem)
            raise
        await conversation.aafter_model(permit, recorded)
        return answer

    def _refuse(self, call: Any, refused: CallDenied | ResultWithheld) -> ToolMessage:
        """Return what the model is told."""
        if isinstance(refused, ResultWithheld):
            return _error(call, f"{refused.error.code}: {refused.error}")
        self._await_person(refused, call["name"])
        return _error(call, refused.reason)

    def _await_person(self, denied: CallDenied, name: str) -> None:
        """Pause the run if a person must decide. The resumed node makes the call again, which is judged anew."""
        if self._pause and denied.approval:
            interrupt({"approval": denied.approval, "reason": denied.reason, "tool": name})


def _record_exception(permit: Permit, problem: BaseException) -> None:
    """Record what a model raised; a pause or a jump of the graph cancels the request, which is made again later."""
    permit.conversation.fail(permit, problem, cancelled=isinstance(problem, GraphBubbleUp))


def _unknown(call: Any) -> ToolMessage:
    """Return what the model is told about a tool that the agent does not have.

    The framework would say it too, but a middleware behind this one could run a tool in its place.
    """
    return _error(call, f"{call['name']} is no tool of this agent")


def _error(call: Any, text: str) -> ToolMessage:
    return ToolMessage(content=text, tool_call_id=call["id"], name=call["name"], status="error")
