"""The methods of governed tools: each run is judged with its final arguments, and recorded."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any

import attrs
from crewai.tools.base_tool import BaseTool, Tool
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.string_utils import sanitize_tool_name

from deedbook_guard import CallDenied, Guard, Permit, ResultWithheld


class ToolFailureError(Exception):
    """A tool said by its result that it failed."""


@attrs.frozen
class ToolMethods:
    """The methods of a governed tool, for `govern_object`. Each attempt is a call of its own."""

    guard: Guard

    def __call__(self, base: Any) -> Mapping[str, Any]:
        """Return the methods that act: `_run` and `_arun`, and the others where they do not end in these."""
        guard = self.guard

        def _run(tool: Any, *args: Any, **kwargs: Any) -> Any:
            return _perform(guard, tool, _by_name(tool, args, kwargs), lambda final: base._run(tool, **final))

        async def _arun(tool: Any, *args: Any, **kwargs: Any) -> Any:
            given = _by_name(tool, args, kwargs)
            return await _aperform(guard, tool, given, lambda final: base._arun(tool, **final))

        def run(tool: Any, *args: Any, **kwargs: Any) -> Any:
            return _perform(guard, tool, _validate_args(tool, args, kwargs), lambda final: base.run(tool, **final))

        async def arun(tool: Any, *args: Any, **kwargs: Any) -> Any:
            given = _validate_args(tool, args, kwargs)
            return await _aperform(guard, tool, given, lambda final: base.arun(tool, **final))

        made = {"_run": _run, "_arun": _arun, "cache_function": property(lambda _: _no_cache)}
        if base.run is not BaseTool.run:
            made["run"] = run
        if base.arun not in (BaseTool.arun, Tool.arun):
            made["arun"] = arun
        return made


def _no_cache(_args: Any = None, _result: Any = None) -> bool:
    """Keep no result: a cached one would answer a call that was not judged, and a refusal would outlive its reason."""
    return False


def _perform(guard: Guard, tool: Any, given: dict[str, Any], perform: Callable[[dict[str, Any]], Any]) -> Any:
    """Run the tool if the call is allowed; otherwise return what the model is told."""
    try:
        permit = guard.current.before(sanitize_tool_name(tool.name), given)
    except CallDenied as denied:
        return ToolFailure(message=denied.reason)
    with _recorded_exception(permit):
        value = perform(permit.args)
    if isawaitable(value):
        return _await_result(permit, value)
    if isinstance(value, ToolFailure):
        return _record_failure(permit, value)
    try:
        return permit.conversation.after(permit, value)
    except ResultWithheld as withheld:
        return _withheld(withheld)


async def _aperform(
    guard: Guard, tool: Any, given: dict[str, Any], perform: Callable[[dict[str, Any]], Awaitable[Any]]
) -> Any:
    """Act like `_perform`, from a coroutine."""
    try:
        permit = await guard.current.abefore(sanitize_tool_name(tool.name), given)
    except CallDenied as denied:
        return ToolFailure(message=denied.reason)
    return await _await_result(permit, perform(permit.args))


async def _await_result(permit: Permit, running: Awaitable[Any]) -> Any:
    """Wait for a coroutine of a tool; record its result and return what the model may see of it."""
    with _recorded_exception(permit):
        value = await running
    if isinstance(value, ToolFailure):
        return _record_failure(permit, value)
    try:
        return await permit.conversation.aafter(permit, value)
    except ResultWithheld as withheld:
        return _withheld(withheld)


@contextmanager
def _recorded_exception(permit: Permit) -> Iterator[None]:
    try:
        yield
    except BaseException as problem:
        permit.conversation.fail(permit, problem)
        raise


def _record_failure(permit: Permit, failure: ToolFailure) -> ToolFailure:
    """Record what a tool reports as its failure."""
    permit.conversation.fail(permit, ToolFailureError(failure.message))
    return failure


def _withheld(withheld: ResultWithheld) -> ToolFailure:
    return ToolFailure(message=f"{withheld.error.code}: {withheld.error}")


def _validate_args(tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with defaults, as the function gets them."""
    made: dict[str, Any] = tool._validate_kwargs(_by_name(tool, args, kwargs))
    return made


def _by_name(tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, as policies judge them."""
    names = list(tool.args_schema.model_fields)
    if len(args) > len(names):
        raise TypeError(f"tool {tool.name!r} takes {len(names)} arguments; {len(args)} were given")
    return {**dict(zip(names, args, strict=False)), **kwargs}
