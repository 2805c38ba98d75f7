"""Tools of Google ADK whose runs are judged with their final arguments, and recorded."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from inspect import isasyncgen
from typing import Any, Final

from google.adk.tools import ToolContext

from deedbook_guard import CallDenied, Permit, ResultWithheld

PLUGIN: Final = "deedbook"
"""The name of the plugin; an app has one at most."""


def governed_tool(base: Any) -> dict[str, Any]:
    """Return the methods of a governed tool; see `govern_object`. Each attempt is a call of its own."""

    async def run_async(self: Any, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Run the tool if the call is allowed; a run whose app has no guard is not changed."""
        plugin: Any = tool_context.get_invocation_context().plugin_manager.get_plugin(PLUGIN)
        if plugin is None:
            return await base.run_async(self, args=args, tool_context=tool_context)
        try:
            permit = await plugin.guard.current.abefore(self.name, args)
        except CallDenied as denied:
            return _refusal(denied, tool_context, pause=plugin.pause)
        try:
            value = await base.run_async(self, args=permit.args, tool_context=tool_context)
        except BaseException as problem:
            permit.conversation.fail(permit, problem)
            raise
        if isasyncgen(value):
            return _recorded_stream(value, permit)
        try:
            return await permit.conversation.aafter(permit, value)
        except ResultWithheld as withheld:
            return {"error": f"{withheld.error.code}: {withheld.error}"}

    return {"run_async": run_async}


async def _recorded_stream(values: Any, permit: Permit) -> AsyncIterator[Any]:
    """Yield what a streaming tool of a live run yields, and record all of it when it ends."""
    seen: list[Any] = []
    try:
        async with aclosing(values):
            async for value in values:
                seen.append(value)
                yield value
    except BaseException as problem:
        permit.conversation.fail(permit, problem)
        raise
    await permit.conversation.aafter(permit, seen)


def _refusal(denied: CallDenied, context: ToolContext, *, pause: bool) -> dict[str, str]:
    """Return what the model is told; pause the run if a person must decide.

    A resumed run does not pause again: the framework asks only once for the confirmation of a call.
    """
    if pause and denied.approval and context.tool_confirmation is None:
        context.request_confirmation(hint=denied.reason, payload={"approval": denied.approval})
        context.actions.skip_summarization = True
    return {"error": denied.reason}
