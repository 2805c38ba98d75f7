"""The methods of governed tools: each run is judged with its final arguments, and recorded."""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any, Final

import attrs
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.string_utils import sanitize_tool_name

from deedbook_guard import CallDenied, Conversation, Guard, Permit, ResultWithheld

_PERMITTED: Final[ContextVar[Any]] = ContextVar("deedbook_crewai_permitted", default=None)
"""The tool whose call is permitted: `run` calls `_run` for the same call."""


class ToolFailureError(Exception):
    """A tool said by its result that it failed."""


@attrs.frozen
class ToolMethods:
    """The methods of a governed tool, for `govern_object`. Each attempt is a call of its own."""

    guard: Guard

    def __call__(self, base: Any) -> Mapping[str, Any]:
        """Return the methods that a run enters: native calls use `run`, and calls in a text use `_run`."""
        guard = self.guard

        def run(tool: Any, *args: Any, **kwargs: Any) -> Any:
            given = tool._validate_kwargs(kwargs) if not args else _by_name(tool, args, kwargs)
            return _perform(guard, tool, given, lambda final: base.run(tool, **final))

        async def arun(tool: Any, *args: Any, **kwargs: Any) -> Any:
            given = tool._validate_kwargs(kwargs) if not args else _by_name(tool, args, kwargs)
            return await _aperform(guard, tool, given, lambda final: base.arun(tool, **final))

        def _run(tool: Any, *args: Any, **kwargs: Any) -> Any:
            if _is_permitted(tool):
                return base._run(tool, *args, **kwargs)
            return _perform(guard, tool, _by_name(tool, args, kwargs), lambda final: base._run(tool, **final))

        async def _arun(tool: Any, *args: Any, **kwargs: Any) -> Any:
            if _is_permitted(tool):
                return await base._arun(tool, *args, **kwargs)
            given = _by_name(tool, args, kwargs)
            return await _aperform(guard, tool, given, lambda final: base._arun(tool, **final))

        return {"run": run, "arun": arun, "_run": _run, "_arun": _arun, "cache_function": property(lambda _: _no_cache)}


def _no_cache(_args: Any = None, _result: Any = None) -> bool:
    """Keep no result: a cached one would answer a call that nobody judged, and a refusal would outlive its reason."""
    return False


def _perform(guard: Guard, tool: Any, given: dict[str, Any], perform: Callable[[dict[str, Any]], Any]) -> Any:
    """Run the tool if the call is allowed; otherwise return what the model is told."""
    conversation = guard.current
    try:
        permit = conversation.before(sanitize_tool_name(tool.name), given)
    except CallDenied as denied:
        return ToolFailure(message=denied.reason)
    token = _PERMITTED.set(tool)
    try:
        value = perform(permit.args)
    except BaseException as problem:
        conversation.fail(permit, problem)
        raise
    finally:
        _PERMITTED.reset(token)
    return _finish_later(conversation, permit, value) if isawaitable(value) else _finish(conversation, permit, value)


async def _aperform(
    guard: Guard, tool: Any, given: dict[str, Any], perform: Callable[[dict[str, Any]], Awaitable[Any]]
) -> Any:
    """Act like `_perform`, from a coroutine."""
    conversation = guard.current
    try:
        permit = await conversation.abefore(sanitize_tool_name(tool.name), given)
    except CallDenied as denied:
        return ToolFailure(message=denied.reason)
    token = _PERMITTED.set(tool)
    try:
        value = await perform(permit.args)
    except BaseException as problem:
        conversation.fail(permit, problem)
        raise
    finally:
        _PERMITTED.reset(token)
    return _finish(conversation, permit, value)


async def _finish_later(conversation: Conversation, permit: Permit, value: Awaitable[Any]) -> Any:
    """Record the result of a coroutine that the framework awaits."""
    try:
        result = await value
    except BaseException as problem:
        conversation.fail(permit, problem)
        raise
    return _finish(conversation, permit, result)


def _finish(conversation: Conversation, permit: Permit, value: Any) -> Any:
    """Record a result and return what the model may see of it."""
    if isinstance(value, ToolFailure):
        conversation.fail(permit, ToolFailureError(value.message))
        return value
    try:
        return conversation.after(permit, value)
    except ResultWithheld as withheld:
        return ToolFailure(message=f"{withheld.error.code}: {withheld.error}")


def _is_permitted(tool: Any) -> bool:
    """Return whether `run` has the permit of this call, and use it up: a tool that calls itself is judged again."""
    if _PERMITTED.get() is not tool:
        return False
    _PERMITTED.set(None)
    return True


def _by_name(tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, as policies judge them."""
    names = list(tool.args_schema.model_fields)
    if len(args) > len(names):
        raise TypeError(f"tool {tool.name!r} takes {len(names)} arguments; {len(args)} were given")
    return {**dict(zip(names, args, strict=False)), **kwargs}
