"""The middleware of Microsoft Agent Framework that takes tool calls and requests to models through the guard."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import contextmanager
from json import dumps
from typing import Any, Final

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    MiddlewareFailure,
    MiddlewareTermination,
    ResponseStream,
)
from agent_framework.exceptions import UserInputRequiredException

from deedbook_guard import CallDenied, Guard, Permit, ResultWithheld, completions

from .completions import request_of, response_of

_CONTROL_FLOW: Final = (MiddlewareTermination, UserInputRequiredException)


class ToolGovernance(FunctionMiddleware):
    """Judges each tool call with its final arguments, and records its outcome; each attempt is a call of its own."""

    def __init__(self, guard: Guard, *, pause: bool) -> None:
        self._guard, self._pause = guard, pause

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Run the tool if the call is allowed; otherwise tell the model why, or pause the run.

        The framework turns exceptions into results of the tool, so a fault of the guard is a `MiddlewareFailure`.
        """
        try:
            with _failing_closed():
                given = _arguments(context.arguments)
                permit = await self._guard.current.abefore(context.function.name, given)
        except CallDenied as denied:
            context.result = self._refusal(context, denied, given)
            return
        if permit.args != given:
            context.arguments = permit.args
        await self._perform(permit, call_next)
        try:
            with _failing_closed():
                recorded = completions.text_of(context.result)
                seen = await permit.conversation.aafter(permit, recorded)
        except ResultWithheld as withheld:
            context.result = f"{withheld.error.code}: {withheld.error}"
            return
        if seen != recorded:
            context.result = seen if isinstance(seen, str) else dumps(seen)

    async def _perform(self, permit: Permit, call_next: Callable[[], Awaitable[None]]) -> None:
        try:
            await call_next()
        except BaseException as problem:
            with _failing_closed():
                permit.conversation.fail(permit, problem, cancelled=isinstance(problem, _CONTROL_FLOW))
            raise

    def _refusal(self, context: FunctionInvocationContext, denied: CallDenied, given: dict[str, Any]) -> Any:
        """Return what takes the place of the result: the reason, or a request for approval that pauses the run."""
        occurrence = context.metadata.get("function_call_occurrence_id")
        if not (self._pause and denied.approval and occurrence):
            return denied.reason
        call = Content.from_function_call(
            call_id=context.metadata["call_id"], name=context.function.name, arguments=given, id=occurrence
        )
        about = {"approval": denied.approval, "reason": denied.reason}
        return Content.from_function_approval_request(id=occurrence, function_call=call, additional_properties=about)


class ModelGovernance(ChatMiddleware):
    """Judges each request to a model and records its answer; a denial raises `CallDenied`, which stops the run."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Ask the model if the request is allowed."""
        conversation = self._guard.current
        permit = await conversation.abefore_model(request_of(context))
        try:
            await call_next()
            if isinstance(context.result, ResponseStream):
                context.result = _recorded_stream(context.result, permit)
                return
            recorded = response_of(context.result)
        except BaseException as problem:
            conversation.fail(permit, problem, cancelled=isinstance(problem, _CONTROL_FLOW))
            raise
        await conversation.aafter_model(permit, recorded)


def _recorded_stream(inner: Any, permit: Permit) -> Any:
    """Return a stream with the same updates, whose whole answer is recorded when it ends."""

    async def updates() -> AsyncIterator[Any]:
        try:
            async for update in inner:
                yield update
            recorded = response_of(await inner.get_final_response())
        except BaseException as problem:
            permit.conversation.fail(permit, problem)
            await inner.close()
            raise
        await permit.conversation.aafter_model(permit, recorded)

    return ResponseStream(updates(), finalizer=lambda _updates: inner.get_final_response())


@contextmanager
def _failing_closed() -> Any:
    """Raise `MiddlewareFailure` for every exception but a decision: the framework absorbs no such failure."""
    try:
        yield
    except (CallDenied, ResultWithheld):
        raise
    except Exception as problem:
        raise MiddlewareFailure(f"the call could not be governed: {problem}") from problem


def _arguments(given: Any) -> dict[str, Any]:
    return dict(given) if isinstance(given, Mapping) else given.model_dump()
