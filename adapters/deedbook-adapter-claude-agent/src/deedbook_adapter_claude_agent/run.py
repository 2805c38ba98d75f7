"""One run of the CLI: its tool calls are judged when it asks, and recorded when it tells their outcome."""

from dataclasses import replace
from typing import Any, Final

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKError,
    HookMatcher,
    Message,
    ResultMessage,
    ServerToolUseBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from deedbook.format.errors import BindingError, fault
from deedbook_guard import CallDenied, Conversation, Permit, ResultWithheld, completions

from .options import ask_hooks, keep_arguments
from .outputs import blank, has_form_of

_PATIENCE: Final = 24 * 3600.0
"""Seconds that the CLI waits for a hook. The guard has limits of its own, and may wait for a person."""


class Run:
    """The hooks of one run and the calls that are open in it; *pending* gets the calls that wait for a person."""

    def __init__(self, conversation: Conversation, pending: dict[str, CallDenied], *, pause: bool) -> None:
        self._conversation, self._pending, self._pause = conversation, pending, pause
        self._open: dict[str, Permit] = {}
        self._asked: set[str] = set()
        self._seen: dict[str, str] = {}
        self._fault: Exception | None = None

    def govern(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """Return *options* with the hooks of this run; other hooks may no longer change arguments.

        Raises `BindingError` for options under which the CLI would not ask the hooks.
        """
        options = keep_arguments(ask_hooks(options))
        hooks: dict[Any, list[HookMatcher]] = dict(options.hooks or {})
        ours = {"PreToolUse": self._before, "PostToolUse": self._after, "PostToolUseFailure": self._fail}
        for event, callback in ours.items():
            matcher = HookMatcher(hooks=[callback], timeout=_PATIENCE, on_failure="block")
            hooks[event] = [*hooks.get(event, []), matcher]
        return replace(options, hooks=hooks)

    # --- hooks: each returns {} if it has no opinion, and stops the run if the guard or the ledger fails ------------

    async def _before(self, given: Any, tool_use_id: str | None, context: Any) -> Any:
        try:
            return await self._judge(given, given["tool_use_id"])
        except Exception as problem:  # noqa: BLE001 - whatever fails here is no permission
            stop = self._stop(problem)
            return {**_decision("deny", stop["stopReason"]), **stop}

    async def _after(self, given: Any, tool_use_id: str | None, context: Any) -> Any:
        try:
            return await self._record(given, self._take(given))
        except Exception as problem:  # noqa: BLE001 - as above
            return self._stop(problem)

    async def _fail(self, given: Any, tool_use_id: str | None, context: Any) -> Any:
        try:
            problem = ClaudeSDKError(given["error"])
            self._conversation.fail(self._take(given), problem, cancelled=bool(given.get("is_interrupt")))
        except Exception as problem:  # noqa: BLE001 - as above
            return self._stop(problem)
        return {}

    async def _judge(self, given: Any, call_id: str) -> Any:
        """Return the decision about a call: the CLI's own rules go on to hold for a call that is allowed."""
        self._asked.add(call_id)
        self._pending.pop(call_id, None)
        args = given["tool_input"]
        try:
            permit = await self._conversation.abefore(given["tool_name"], args)
        except CallDenied as denied:
            if not (self._pause and denied.approval) or "agent_id" in given:  # a sub-agent's call cannot be deferred
                return _decision("deny", denied.reason)
            self._pending[call_id] = denied
            return _decision("defer", denied.reason)
        self._open[call_id] = permit
        if "agent_id" in given:
            about = {name: given.get(name) for name in ("agent_id", "agent_type", "tool_use_id")}
            self._conversation.note("SubagentCall", about, permit)
        if permit.args == args:
            return {}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": permit.args}}

    async def _record(self, given: Any, permit: Permit) -> Any:
        """Record a result; return what takes its place for the model."""
        if given["tool_input"] != permit.args:
            self._conversation.note("ArgumentsChanged", {"input": given["tool_input"]}, permit)
        output, changeable = given["tool_response"], given["tool_name"].startswith("mcp__")
        try:
            seen = await self._conversation.aafter(permit, output)
        except ResultWithheld as withheld:
            why = f"{withheld.error.code}: {withheld.error}"
            return _output(why) if changeable else _blank(output, why)
        if seen == output:
            return {}
        if changeable or has_form_of(seen, output):
            return _output(seen)
        why = f"{permit.ticket.bound.id}: a hook changed the result into a form that the CLI does not take"
        return _blank(output, why)

    def _take(self, given: Any) -> Permit:
        permit = self._open.pop(given["tool_use_id"], None)
        if permit is None:
            raise self._record_ungoverned(given["tool_name"], given["tool_use_id"])
        return permit

    def _record_ungoverned(self, tool: str, tool_use_id: str) -> BindingError:
        """Record a call that ran without a decision; return the exception that ends the run."""
        self._conversation.note("UngovernedCall", {"tool": tool, "tool_use_id": tool_use_id})
        return BindingError(fault("BINDING_INVALID", f"{tool} ran without a decision: the CLI did not ask the hooks"))

    def _stop(self, problem: Exception) -> dict[str, Any]:
        self._fault = self._fault or problem
        return {"continue_": False, "stopReason": f"the call could not be governed: {problem}"}

    # --- messages -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the exception that ended the run."""
        if self._fault is not None:
            raise self._fault

    def read(self, message: Message) -> None:
        """Record what only the messages show: calls that did not run, tools of the provider, and the usage.

        Raises the exception that ended the run, and `BindingError` for a call that ran without a decision.
        """
        self.check()
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    self._seen[block.id] = block.name
                elif isinstance(block, ServerToolUseBlock):
                    self._conversation.note("HostedTool", {"type": block.name, "tool_use_id": block.id})
        elif isinstance(message, UserMessage) and isinstance(message.content, list):
            for result in message.content:
                if isinstance(result, ToolResultBlock):
                    self._close(result)
        elif isinstance(message, ResultMessage):
            self._conversation.note("ModelUsage", _usage(message))

    def end(self, problem: BaseException | None = None) -> None:
        """Close the calls that have no outcome: *problem* cancelled them, or what became of them is unknown."""
        while self._open:
            _, permit = self._open.popitem()
            if problem is None or isinstance(problem, Exception):
                self._conversation.abandon(permit, "the run ended before its outcome was known")
            else:
                self._conversation.fail(permit, problem)

    def _close(self, result: ToolResultBlock) -> None:
        """Close a call for which the CLI asked no second hook: its rules refused it, or it was interrupted."""
        name = self._seen.pop(result.tool_use_id, "")
        permit = self._open.pop(result.tool_use_id, None)
        if permit is not None:
            problem = ClaudeSDKError(completions.text_of(result.content))
            self._conversation.fail(permit, problem, cancelled=True)
        elif name and not result.is_error and result.tool_use_id not in self._asked:
            raise self._record_ungoverned(name, result.tool_use_id)
        self._asked.discard(result.tool_use_id)


def _decision(decision: str, reason: str) -> dict[str, Any]:
    told = {"permissionDecision": decision, "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **told}}


def _output(output: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": output}}


def _blank(output: Any, why: str) -> dict[str, Any]:
    """End the run, and take the texts out of a result: it stays in the conversation, which may go on."""
    return {**_output(blank(output)), "continue_": False, "stopReason": why}


def _usage(message: ResultMessage) -> dict[str, Any]:
    """Return what the CLI says that its models used since the last such message; the cost is the sum so far."""
    return {
        "cli_session": message.session_id,
        "cost_usd_so_far": str(message.total_cost_usd),
        "models_so_far": message.model_usage,
        "turns": message.num_turns,
        "usage": message.usage,
    }
