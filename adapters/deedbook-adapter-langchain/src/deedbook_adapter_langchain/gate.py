"""Decides about the runs of one tool of LangChain, with the arguments that the framework validated."""

from collections.abc import Mapping
from typing import Any

from langchain.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.tools.base import _get_runnable_config_param
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from deedbook_guard import CallDenied, Conversation, Permit, ResultWithheld
from deedbook_guard.arguments import (
    argument_form,
    is_judged,
    judged_args,
    merge_rewritten,
    private_copies,
    refuse_use,
    require_judged,
    schema_names,
)


class ToolGate:
    """The gate of one *call* of a model to a *tool*; each attempt to run it is a call of its own.

    *refusal* is why the last attempt was refused, or why its result is withheld. *entered* is the permit of a tool with
    a way of its own to run: it is judged before that, and compared when it gets its arguments.
    """

    def __init__(self, conversation: Conversation, tool: BaseTool, call: Mapping[str, Any]) -> None:
        self.refusal: CallDenied | ResultWithheld | None = None
        self.entered: Permit | None = None
        self._conversation, self._tool, self._call = conversation, tool, call
        self._names = schema_names(tool.args_schema)
        self._judged = False

    def judge(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Permit, tuple[Any, ...], dict[str, Any]]:
        """Judge what the tool is about to get; return the permit and what to give to it. Raises `CallDenied`."""
        own, form = self._own(args, kwargs)
        try:
            permit = self._conversation.before(self._tool.name, form)
            return permit, *self._final(permit, own, args, kwargs)
        except CallDenied as denied:
            self.refusal = denied
            raise

    async def ajudge(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Permit, tuple[Any, ...], dict[str, Any]]:
        """Act like `judge`, from a coroutine."""
        own, form = self._own(args, kwargs)
        try:
            permit = await self._conversation.abefore(self._tool.name, form)
            return permit, *self._final(permit, own, args, kwargs)
        except CallDenied as denied:
            self.refusal = denied
            raise

    def compare(self, permit: Permit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise `CallDenied` unless these are the arguments that were judged before."""
        try:
            require_judged(permit, self._own(args, kwargs)[1])
        except CallDenied as denied:
            self.refusal = denied
            raise

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the model as the framework validates them; raises what its validation raises."""
        parsed: Any = self._tool._parse_input(dict(given), self._call.get("id"))  # noqa: SLF001 - its only validation
        return dict(parsed)

    def fail(self, permit: Permit, problem: BaseException) -> None:
        """Record what the tool raised; a pause or a jump of the graph cancels the call, which is made again later."""
        if problem is not self.refusal:
            permit.conversation.fail(permit, problem, cancelled=isinstance(problem, GraphBubbleUp))

    def end(self, permit: Permit, value: Any) -> Any:
        """Record the result; return what the caller may see of it. Raises `ResultWithheld`."""
        if self._failed(permit, value):
            return value
        try:
            return self._visible(value, permit.conversation.after(permit, self._recorded(value)))
        except ResultWithheld as withheld:
            self.refusal = withheld
            raise

    async def aend(self, permit: Permit, value: Any) -> Any:
        """Act like `end`, from a coroutine."""
        if self._failed(permit, value):
            return value
        try:
            return self._visible(value, await permit.conversation.aafter(permit, self._recorded(value)))
        except ResultWithheld as withheld:
            self.refusal = withheld
            raise

    def answer(self, given: Any) -> Any:
        """Return what the framework got for the call; note an answer for which the tool did not run.

        A middleware behind the guard's gave it, or ran another tool. A message of an error is the framework's own.
        """
        if not self._judged and not (isinstance(given, ToolMessage) and given.status == "error"):
            call = {"name": self._call["name"], "args": self._call["args"]}
            self._conversation.note("UngovernedCall", {"kind": "tool", "call": call})
        return given

    # --- arguments ----------------------------------------------------------------------------------------------------

    def _own(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments of the model, without what the framework adds, and their JSON form."""
        self.refusal, self._judged = None, True
        tool = self._tool
        added = {_get_runnable_config_param(tool._run), _get_runnable_config_param(tool._arun)}  # noqa: SLF001
        named = tool._filter_injected_args(dict(kwargs))  # noqa: SLF001 - what the framework shows to its callbacks
        own = {name: each for name, each in named.items() if name not in added}
        if args:  # a tool with one text as its input
            own = {**dict(zip(self._positional(len(args)), args, strict=True)), **own}
        return own, argument_form(own, self._names)

    def _positional(self, count: int) -> list[str]:
        sent = list(self._call["args"])
        return sent if len(sent) == count else [f"__arg{number}" for number in range(1, count + 1)]

    def _final(
        self, permit: Permit, own: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what to give to the tool; what a hook changed passes the framework's own validation once more."""
        form = argument_form(own, self._names)
        added = {name: each for name, each in kwargs.items() if name not in own}
        if is_judged(permit, form):
            final = private_copies(own, form, self._names)
        else:
            final = self._revalidated(permit, own, form, added)
        positional = self._positional(len(args)) if args else []
        return tuple(final[name] for name in positional), {
            **{name: each for name, each in final.items() if name not in positional},
            **added,
        }

    def _revalidated(
        self, permit: Permit, own: dict[str, Any], form: dict[str, Any], added: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            parsed = self.parse({**merge_rewritten(permit, own, form, self._names), **added})
        except Exception as problem:  # noqa: BLE001 - each tool may have validators of its own
            raise refuse_use(permit, f"the tool does not accept what a hook made of its arguments: {problem}") from None
        final = {name: each for name, each in parsed.items() if name not in added}
        if not is_judged(permit, argument_form(final, self._names)):
            raise refuse_use(permit, "a hook changed the arguments, and the tool reads them as others")
        return final

    def rewritten(self, permit: Permit, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the raw arguments of a tool with a way of its own to run, if a hook changed them."""
        if is_judged(permit, self._own((), self.parse(given))[1]):
            return None
        return {**given, **judged_args(permit)}

    # --- results ------------------------------------------------------------------------------------------------------

    def _failed(self, permit: Permit, value: Any) -> bool:
        """Record a failure that the tool reports as a message for the model."""
        if not (isinstance(value, ToolMessage) and value.status == "error"):
            return False
        permit.conversation.fail(permit, ToolException(value.text))
        return True

    def _has_artifact(self, value: Any) -> bool:
        pair = isinstance(value, tuple) and len(value) == 2
        return pair and self._tool.response_format == "content_and_artifact"

    def _recorded(self, value: Any) -> Any:
        """Return what the ledger gets: the content that the model is told, or the update of a ``Command``."""
        if self._has_artifact(value):
            return value[0]
        if isinstance(value, ToolMessage):
            return value.content
        return {"goto": value.goto, "update": value.update} if isinstance(value, Command) else value

    def _visible(self, value: Any, seen: Any) -> Any:
        """Return the result as the model may see it; *seen* differs from what is recorded if a hook narrowed it."""
        recorded = self._recorded(value)
        if seen is recorded or seen == recorded:
            return value
        if self._has_artifact(value):
            return seen, None
        if isinstance(value, ToolMessage):
            return value.model_copy(update={"content": seen if isinstance(seen, str) else str(seen), "artifact": None})
        return seen
