"""The middleware of LangChain that takes each tool call and each request to a model through the guard."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, interrupt

from deedbook_guard import CallDenied, Guard, Permit, ResultWithheld

from .completions import request_of, response_of
from .offers import ToolOffers


class Governance(AgentMiddleware):
    """Judges each tool call with its final arguments and each request to a model, and records the outcome of both.

    Each attempt is a call of its own.
    """

    def __init__(self, guard: Guard, *, pause: bool) -> None:
        super().__init__()
        self._guard, self._pause = guard, pause
        self._offers = ToolOffers()

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Run the tool if the call is allowed; otherwise tell the model why, or pause the run."""
        conversation = self._guard.current
        call = request.tool_call
        try:
            permit = conversation.before(call["name"], call["args"])
        except CallDenied as denied:
            return self._refuse(call, denied)
        try:
            answer = handler(_use_permitted_args(request, permit))
        except BaseException as problem:
            _record_exception(permit, problem)
            raise
        if _has_failed(answer):
            return _record_failure(permit, answer)
        try:
            return _visible(answer, conversation.after(permit, _ledger_value(answer)))
        except ResultWithheld as withheld:
            return _error(call, f"{withheld.error.code}: {withheld.error}")

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Act like `wrap_tool_call`, from a coroutine."""
        conversation = self._guard.current
        call = request.tool_call
        try:
            permit = await conversation.abefore(call["name"], call["args"])
        except CallDenied as denied:
            return self._refuse(call, denied)
        try:
            answer = await handler(_use_permitted_args(request, permit))
        except BaseException as problem:
            _record_exception(permit, problem)
            raise
        if _has_failed(answer):
            return _record_failure(permit, answer)
        try:
            return _visible(answer, await conversation.aafter(permit, _ledger_value(answer)))
        except ResultWithheld as withheld:
            return _error(call, f"{withheld.error.code}: {withheld.error}")

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

    def _refuse(self, call: Any, denied: CallDenied) -> ToolMessage:
        """Return what the model is told."""
        self._await_person(denied, call["name"])
        return _error(call, denied.reason)

    def _await_person(self, denied: CallDenied, name: str) -> None:
        """Pause the run if a person must decide. The resumed node makes the call again, which is judged anew."""
        if self._pause and denied.approval:
            interrupt({"approval": denied.approval, "reason": denied.reason, "tool": name})


def _use_permitted_args(request: Any, permit: Permit) -> Any:
    return request.override(tool_call={**request.tool_call, "args": permit.args})


def _record_exception(permit: Permit, problem: BaseException) -> None:
    """Record what a tool raised; a pause or a jump of the graph cancels the call, which is made again later."""
    permit.conversation.fail(permit, problem, cancelled=isinstance(problem, GraphBubbleUp))


def _has_failed(answer: Any) -> bool:
    return isinstance(answer, ToolMessage) and answer.status == "error"


def _record_failure(permit: Permit, answer: ToolMessage) -> ToolMessage:
    """Record an exception of the tool that the framework has turned into a message for the model."""
    permit.conversation.fail(permit, ToolException(answer.text))
    return answer


def _ledger_value(answer: Any) -> Any:
    """Return what the ledger gets: the content of a message, or the update of a ``Command``."""
    if isinstance(answer, ToolMessage):
        return answer.content
    return {"goto": answer.goto, "update": answer.update} if isinstance(answer, Command) else answer


def _visible(answer: Any, seen: Any) -> Any:
    """Return the answer as the model may see it; *seen* differs from `_ledger_value` if a hook narrowed it."""
    recorded = _ledger_value(answer)
    if seen is recorded or seen == recorded:
        return answer
    if isinstance(answer, ToolMessage):
        return answer.model_copy(update={"content": seen if isinstance(seen, str) else str(seen), "artifact": None})
    return seen


def _error(call: Any, text: str) -> ToolMessage:
    return ToolMessage(content=text, tool_call_id=call["id"], name=call["name"], status="error")
