"""The interceptor of agent-hooks that takes every point of an agent's life through the guard."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from agent_hooks import (
    ALLOW,
    SPEC_VERSION,
    AgentContext,
    ApprovalOutcome,
    ApprovalRequest,
    ApprovalResolution,
    Decision,
    InterceptionPoint,
    InterceptionRecord,
    Transform,
    Verdict,
)

from deedbook.format.errors import BindingError, DeedbookError, describe, fault
from deedbook_guard import CallDenied, Guard

from .session import Change, HookSession

_REQUEST: Final = "deedbook_request"
"""The member of a verdict's ``approval`` that has the id of the request for a person."""
_ANSWERS: Final[Mapping[InterceptionPoint, Callable[[HookSession, AgentContext], Awaitable[Change | None]]]] = {
    InterceptionPoint.INPUT: HookSession.submit,
    InterceptionPoint.PRE_MODEL_CALL: HookSession.before_model,
    InterceptionPoint.POST_MODEL_CALL: HookSession.after_model,
    InterceptionPoint.PRE_TOOL_CALL: HookSession.before_tool,
    InterceptionPoint.POST_TOOL_CALL: HookSession.after_tool,
    InterceptionPoint.OUTPUT: HookSession.reply,
}


class GuardInterceptor:
    """Judges and records what a host does at the eight points; each of its faults is a denial.

    A session of the host is a conversation of the guard, from ``agent_startup`` to ``agent_shutdown``. Several hosts
    may share an interceptor.
    """

    def __init__(self, guard: Guard, *, approvals: bool) -> None:
        self._guard, self._approvals = guard, approvals
        self._sessions: dict[str, HookSession] = {}

    async def intercept(self, context: AgentContext) -> Verdict:
        """Return the verdict about a point."""
        try:
            return _permission(await self._answer(context))
        except CallDenied as denied:
            approval = {_REQUEST: denied.approval} if denied.approval and self._approvals else None
            return Verdict(Decision.DENY, _code(denied), denied.reason, approval=approval)
        except Exception as problem:  # noqa: BLE001 - hosts differ in what they do with an exception, so none leaves
            return _refusal(problem)

    async def resolve(self, request: ApprovalRequest) -> ApprovalResolution:
        """Judge again a call that a person has to decide, and wait for the person as long as the guard waits.

        Only an answer that Deedbook recorded lifts the denial. Judged is the call as it was asked for, since the
        context of *request* may be redacted.
        """
        unresolved = ApprovalResolution(ApprovalOutcome.UNRESOLVED, request.context_identity)
        if _REQUEST not in (request.verdict.approval or {}):
            return unresolved
        try:
            verdict = _permission(await self._session(request.context).ask_again(request.context["sequence"]))
        except Exception as problem:  # noqa: BLE001 - as above
            if isinstance(problem, CallDenied) and problem.approval:
                return unresolved
            return ApprovalResolution(ApprovalOutcome.REJECT, request.context_identity, _refusal(problem))
        return ApprovalResolution(ApprovalOutcome.APPROVE, request.context_identity, verdict)

    def observe(self, record: InterceptionRecord) -> None:
        """Close a call that this interceptor allowed and the host does not make; give it to the host as record sink.

        Without it, such a call has an unknown outcome when its session ends.
        """
        session = self._sessions.get(record.session_id)
        if session is not None and not record.proceeds:
            session.withdraw(record.sequence, str(record.verdict.reason))

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _answer(self, context: AgentContext) -> Change | None:
        if context["spec"] != SPEC_VERSION:
            why = f"the host uses the contract {context['spec']!r}, and this interceptor {SPEC_VERSION!r}"
            raise BindingError(fault("BINDING_INVALID", why))
        point = InterceptionPoint(context["interception_point"])
        if point is InterceptionPoint.AGENT_STARTUP:
            await self._begin(context)
            return None
        session = self._session(context)
        if point is InterceptionPoint.AGENT_SHUTDOWN:
            del self._sessions[context["session"]["id"]]
            await session.end(str(context["summary"]["reason"]))
            return None
        return await _ANSWERS[point](session, context)

    async def _begin(self, context: AgentContext) -> None:
        name = context["session"]["id"]
        session = HookSession(self._guard, wait=0.0 if self._approvals else None)
        if self._sessions.setdefault(name, session) is not session:
            raise BindingError(fault("BINDING_INVALID", f"the host's session {name!r} has begun already"))
        try:
            await session.begin(context)
        except BaseException as problem:
            del self._sessions[name]
            session.close(describe(problem))
            raise

    def _session(self, context: AgentContext) -> HookSession:
        name = context["session"]["id"]
        if name not in self._sessions:
            why = f"the host's session {name!r} is not open; register the interceptor at every point"
            raise BindingError(fault("SESSION_ENDED", why))
        return self._sessions[name]


def _permission(change: Change | None) -> Verdict:
    return ALLOW if change is None else Verdict(Decision.TRANSFORM, transform=Transform(*change))


def _refusal(problem: Exception) -> Verdict:
    message = f"{problem.error.code}: {problem}" if isinstance(problem, DeedbookError) else describe(problem)
    return Verdict.deny(reason=_code(problem), message=message)


def _code(problem: Exception) -> str:
    return f"deedbook:{problem.error.code if isinstance(problem, DeedbookError) else 'INTERNAL'}"
