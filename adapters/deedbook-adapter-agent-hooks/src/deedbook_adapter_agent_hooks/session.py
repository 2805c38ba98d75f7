"""One session of a host: a conversation of the guard, with the calls that the host has begun."""

import asyncio
from threading import Lock
from typing import Any, Final, TypeAlias

import attrs
from agent_hooks import AgentContext, InterceptionPoint

from deedbook.format import canonical
from deedbook.format.errors import BindingError, DeedbookError, Err, fault
from deedbook_guard import CallDenied, Conversation, Guard, Permit

from .completions import reply_text, request_of, response_of, text_of

Change: TypeAlias = tuple[str, Any]
"""What a hook of the workspace changed: the path in the target, and its value."""
_TARGET: Final = "$target"


class HostFailure(Exception):  # noqa: N818 - what a host says about a call, as the cause of its outcome
    """A call that the host says has failed, or that it does not make."""


@attrs.frozen
class OpenCall:
    """A call that was allowed, and the number of the emission that asked for it."""

    permit: Permit
    name: str
    sequence: int


class HookSession:
    """Answers the points of one session. Calls wait *wait* seconds for a person; without it, as long as the guard."""

    def __init__(self, guard: Guard, *, wait: float | None) -> None:
        self._guard, self._wait = guard, wait
        self._conversation: Conversation | None = None
        self._tools: dict[str, OpenCall | None] = {}
        self._model: OpenCall | None = None
        self._asked: dict[int, AgentContext] = {}
        self._over = ""
        self._lock = Lock()

    # --- life cycle: each in a thread, so that the host can time out a slow hook --------------------------------------

    async def begin(self, context: AgentContext) -> None:
        """Begin the conversation; raises `DeedbookError` if a hook refuses it."""
        await asyncio.to_thread(self._open, context)

    async def end(self, reason: str) -> None:
        """End the conversation. Calls that are open were cancelled with the run, or have an unknown outcome."""
        await asyncio.to_thread(self.close, reason)

    def _open(self, context: AgentContext) -> None:
        conversation = self._guard.conversation()
        with self._lock:
            self._conversation, over = conversation, self._over
        if over:
            conversation.end(over, ok=False)
            return
        tools = context["agent_init"]["tools_registered"]
        conversation.note("AgentStartup", {"agent": context["agent"], "session": context["session"], "tools": tools})

    def close(self, reason: str) -> None:
        """End the conversation, also one that is just being opened."""
        with self._lock:
            self._over = reason or "done"
            conversation = self._conversation
        if conversation is None:
            return
        if reason == "cancelled":
            for each in [self._model, *self._tools.values()]:
                if each is not None:
                    conversation.fail(each.permit, HostFailure("the run was cancelled"), cancelled=True)
        conversation.end(self._over, ok=reason == "completed")

    async def submit(self, context: AgentContext) -> Change | None:
        """Judge and record what the agent is asked to do."""
        content = context["input"]["content"]
        text = text_of(content)
        submitted = await asyncio.to_thread(self._current.session.submit, text)
        if isinstance(submitted, Err):
            raise CallDenied(submitted)
        if submitted.value.prompt == text:
            return None
        if not isinstance(content, str):
            why = "a hook changed the input, which is more than text, so its text cannot be replaced"
            raise BindingError(fault("PROMPT_DENIED", why))
        return f"{_TARGET}.content", submitted.value.prompt

    async def reply(self, context: AgentContext) -> None:
        """Record the answer of the agent; the model's answer that it consists of was judged before."""
        await asyncio.to_thread(self._record_reply, reply_text(context["output"]["content"]))

    def _record_reply(self, text: str) -> None:
        self._current.session.note("agent.reply", "agent", {"reply": text, "tool_calls": []})

    # --- models -------------------------------------------------------------------------------------------------------

    async def before_model(self, context: AgentContext) -> None:
        """Judge and record a request. One that got no answer before has an unknown outcome: the host says nothing."""
        await self._ask_model(context, self._wait)

    async def _ask_model(self, context: AgentContext, wait: float | None) -> None:
        if self._model is not None:
            self._current.abandon(self._model.permit, "the host sent another request without an answer to this one")
            self._model = None
        request = request_of(context)
        permit = await self._await_permit(context, self._current.abefore_model(request, wait=wait))
        self._model = OpenCall(permit, request["model"], context["sequence"])

    async def after_model(self, context: AgentContext) -> None:
        """Record the answer to the open request."""
        opened, self._model = self._model, None
        if opened is None:
            raise self._record_ungoverned("model", context["model"]["id"], context["model"])
        await self._current.aafter_model(opened.permit, response_of(context))

    # --- tools --------------------------------------------------------------------------------------------------------

    async def before_tool(self, context: AgentContext) -> Change | None:
        """Judge a call and record its intent."""
        return await self._ask_tool(context, self._wait)

    async def _ask_tool(self, context: AgentContext, wait: float | None) -> Change | None:
        call = context["tool_call"]
        if call["id"] in self._tools:
            raise BindingError(fault("GATE_DENIED", f"a call with the id {call['id']!r} is open already"))
        self._tools[call["id"]] = None
        try:
            asked = self._current.abefore(call["name"], call["args"], wait=wait)
            permit = await self._await_permit(context, asked)
        except BaseException:
            del self._tools[call["id"]]
            raise
        self._tools[call["id"]] = OpenCall(permit, call["name"], context["sequence"])
        return None if _same(permit.args, call["args"]) else (_TARGET, permit.args)

    async def after_tool(self, context: AgentContext) -> Change | None:
        """Record the outcome of a call, and return what a hook left of the result."""
        call, result = context["tool_call"], context["tool_result"]
        opened = self._tools.pop(call["id"], None)
        if opened is None:
            raise self._record_ungoverned("tool", call["name"], call)
        permit = opened.permit
        if call["name"] != opened.name or not _same(call["args"], permit.args):
            why = "the host ran it with other arguments than those that were judged; register the interceptor last"
            self._current.abandon(permit, why)
            raise BindingError(fault("GATE_DENIED", f"{permit.ticket.bound.id}: {why}"))
        if result["is_error"]:
            self._current.fail(permit, HostFailure(text_of(result["value"])))
            return None
        seen = await self._current.aafter(permit, result["value"])
        return None if seen is result["value"] else (_TARGET, seen)

    # --- calls that the host does not make, or makes on its own -------------------------------------------------------

    async def ask_again(self, sequence: int) -> Change | None:
        """Judge a denied call again, waiting for a person as long as the guard does."""
        context = self._asked.pop(sequence)
        if context["interception_point"] == InterceptionPoint.PRE_TOOL_CALL.value:
            return await self._ask_tool(context, None)
        await self._ask_model(context, None)
        return None

    def withdraw(self, sequence: int, why: str) -> None:
        """Record that the host does not make the call that it asked for with the emission *sequence*."""
        for name, each in list(self._tools.items()):
            if each is not None and each.sequence == sequence:
                del self._tools[name]
                self._cancel(each, why)
        if self._model is not None and self._model.sequence == sequence:
            opened, self._model = self._model, None
            self._cancel(opened, why)

    def _cancel(self, opened: OpenCall, why: str) -> None:
        self._current.fail(opened.permit, HostFailure(f"the host denied it: {why}"), cancelled=True)

    async def _await_permit(self, context: AgentContext, asked: Any) -> Permit:
        """Await the answer to *asked*; keep the context if a person has to decide, and the host may ask again."""
        try:
            permit: Permit = await asked
        except CallDenied as denied:
            if denied.approval and self._wait is not None:
                self._asked[context["sequence"]] = context
            raise
        return permit

    def _record_ungoverned(self, kind: str, name: str, about: dict[str, Any]) -> BindingError:
        """Record a call that ran although it was not allowed, and return the reason to discard its result."""
        self._current.note("UngovernedCall", {"kind": kind, "call": about})
        why = f"the {kind} {name!r} ran, and no call of it was allowed; the host must enforce every denial"
        return BindingError(fault("GATE_DENIED", why))

    @property
    def _current(self) -> Conversation:
        if self._conversation is None:
            raise BindingError(fault("SESSION_ENDED", "the session is being opened"))
        return self._conversation


def _same(one: Any, other: Any) -> bool:
    try:
        return canonical.encode(one) == canonical.encode(other)
    except DeedbookError:
        return False
