"""One conversation of a program: one session, whose calls are judged before they run and recorded afterwards."""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from inspect import isawaitable
from types import TracebackType
from typing import Any, Final, Self

import attrs

from deedbook.call.handlers import Outcome, Ticket
from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DeedbookError, DomainError, Err, Ok, Result, describe, fault
from deedbook.policy.bound import OWN_MODEL
from deedbook.sessions.session import Session

from .completions import estimate_usage, recorded_request
from .faults import FaultReport
from .values import as_json, recorded_result

OTHER: Final = "other"
"""The ability of all tools of a program that its workspace does not declare."""
_RESERVED: Final = (OTHER, OWN_MODEL)
"""Names under that of the program that are no tools of their own."""
_CURRENT: Final[ContextVar[tuple["Conversation", ...]]] = ContextVar("deedbook_conversations", default=())


class CallDenied(DeedbookError):  # noqa: N818 - a decision, named like `SessionRefused`
    """A call was not allowed, so the tool did not run.

    `error` has the code and the reason. *approval* is the id of the request if a person can allow the call: after the
    approval, the same call passes.
    """

    def __init__(self, refused: Err) -> None:
        super().__init__(refused.error)
        self.approval = str(refused.details.get("approval") or "")

    @property
    def reason(self) -> str:
        """The code and the reason, for a model or a person."""
        how = f"; a person runs: deedbook approvals approve {self.approval} --as NAME; then make the same call again"
        return f"{self.error.code}: {self.error}{how if self.approval else ''}"


class ResultWithheld(DeedbookError):  # noqa: N818 - as above
    """The tool ran, and its caller gets no result: a hook or a schema refuses it, or it is not recorded."""


@attrs.define(eq=False)
class Permit:
    """A call that may begin: *args* are the arguments to use, which a hook may have changed."""

    conversation: "Conversation"
    ticket: Ticket
    args: dict[str, Any]


class Conversation:
    """One session of the program *agent*; use it as a context manager, or call `end`.

    Inside ``with``, calls of the guard belong to this conversation, also in tasks that begin there. Calls may run in
    many threads and tasks at once.
    """

    def __init__(self, session: Session, agent: str, *, unknown: str, faults: FaultReport) -> None:
        self.session = session
        self._faults = faults
        self._agent, self._unknown, self._process = agent, unknown, os.getpid()
        self._tokens: list[Token[tuple[Conversation, ...]]] = []

    @property
    def id(self) -> str:
        """The id of its session."""
        return self.session.id

    def end(self, reason: str = "done", *, ok: bool = True) -> None:
        """End the session; open calls get an unknown outcome. A second call does nothing."""
        if os.getpid() == self._process:
            self.session.end(ok=ok, reason=reason)

    def __enter__(self) -> Self:
        self._tokens.append(_CURRENT.set((*_CURRENT.get(), self)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        with suppress(ValueError):  # closed in another context, whose variable is not ours to reset
            _CURRENT.reset(self._tokens.pop())
        self.end("done" if problem is None else describe(problem), ok=problem is None)

    # --- whole calls --------------------------------------------------------------------------------------------------

    def call(self, name: str, args: Mapping[str, Any], perform: Callable[[dict[str, Any]], Any]) -> Any:
        """Call *perform* with the arguments of the tool *name*, if the call is allowed; return its result.

        Raises `CallDenied` if not, `ResultWithheld` if the result may not be seen, and what *perform* raises.
        """
        permit = self.before(name, args)
        try:
            value = perform(permit.args)
        except BaseException as problem:
            self.fail(permit, problem)
            raise
        return self.after(permit, value)

    async def acall(
        self, name: str, args: Mapping[str, Any], perform: Callable[[dict[str, Any]], Awaitable[Any] | Any]
    ) -> Any:
        """Act like `call`, from a coroutine; *perform* may return an awaitable. A cancelled task closes its call."""
        permit = await self.abefore(name, args)
        try:
            value = perform(permit.args)
            if isawaitable(value):
                value = await value
        except BaseException as problem:
            self.fail(permit, problem)
            raise
        return await self.aafter(permit, value)

    # --- models -------------------------------------------------------------------------------------------------------

    def ask_model(self, request: dict[str, Any], perform: Callable[[dict[str, Any]], Object]) -> dict[str, Any]:
        """Call *perform* with a request to a model, if it is allowed; return its answer.

        *request* has the form ``completion_request_v2`` and the answer the form ``completion_response_v2``
        (`deedbook_guard.completions` builds them). Raises as `call`.
        """
        permit = self._before_model(as_json(request))
        try:
            recorded = self._model_answer(permit, perform(permit.args))
        except BaseException as problem:
            self.fail(permit, problem)
            raise
        return dict(_result(self.session.after(permit.ticket, self._result(permit, recorded))))

    async def aask_model(
        self, request: dict[str, Any], perform: Callable[[dict[str, Any]], Awaitable[Object]]
    ) -> dict[str, Any]:
        """Act like `ask_model`, from a coroutine."""
        permit = await self._abefore_model(as_json(request))
        try:
            recorded = self._model_answer(permit, await perform(permit.args))
        except BaseException as problem:
            self.fail(permit, problem)
            raise
        return dict(_result(await self.session.aafter(permit.ticket, self._result(permit, recorded))))

    @property
    def model(self) -> str:
        """The id of the ability for the models that the program asks."""
        return f"{self._agent}/{OWN_MODEL}"

    def before_model(self, request: dict[str, Any]) -> Permit:
        """Judge a request to a model that an agent framework sends, and record it; `after_model` or `fail` must follow.

        The framework sends its own form of the request, so a request that a hook changed is denied. Raises
        `CallDenied`.
        """
        judged = recorded_request(request)
        return self._require_unchanged(self._before_model(judged), judged)

    async def abefore_model(self, request: dict[str, Any], *, wait: float | None = None) -> Permit:
        """Act like `before_model`, from a coroutine; *wait* is as that of `abefore`."""
        judged = recorded_request(request)
        return self._require_unchanged(await self._abefore_model(judged, wait), judged)

    def after_model(self, permit: Permit, response: Object) -> None:
        """Record the answer of a model. Raises `ResultWithheld`, also if a hook changed what may be seen of it."""
        recorded = self._model_answer(permit, response)
        with self._faults:
            _same_answer(self.session.after(permit.ticket, self._result(permit, recorded)), recorded, permit)

    async def aafter_model(self, permit: Permit, response: Object) -> None:
        """Act like `after_model`, from a coroutine."""
        recorded = self._model_answer(permit, response)
        with self._faults:
            _same_answer(await self.session.aafter(permit.ticket, self._result(permit, recorded)), recorded, permit)

    def _before_model(self, judged: dict[str, Any]) -> Permit:
        with self._faults:
            return self._permit_model(self.session.before(self.model, judged))

    async def _abefore_model(self, judged: dict[str, Any], wait: float | None = None) -> Permit:
        with self._faults:
            return self._permit_model(await self.session.abefore(self.model, judged, wait=wait))

    def _permit_model(self, opened: Result[Ticket]) -> Permit:
        if isinstance(opened, Err):
            raise CallDenied(opened)
        return Permit(self, opened.value, opened.value.args)

    def _require_unchanged(self, permit: Permit, judged: dict[str, Any]) -> Permit:
        if permit.ticket.raw == canonical.encode(judged):
            return permit
        why = fault("GATE_DENIED", f"{self.model}: a hook changed the request, and the framework sends its own")
        self.session.after(permit.ticket, Outcome("cancelled", error=why))
        raise CallDenied(Err(why))

    def _model_answer(self, permit: Permit, response: Object) -> Json:
        """Return the answer to record; a note says which counts of its usage are estimated."""
        answer, estimated = estimate_usage(permit.args, dict(response))
        if estimated:
            self.note("UsageEstimated", {"counts": estimated}, permit)
        return recorded_result(answer)  # type: ignore[no-any-return]

    # --- the parts of a call ------------------------------------------------------------------------------------------

    def before(self, name: str, args: Mapping[str, Any]) -> Permit:
        """Judge a call and record its intent; `after` or `fail` must follow. Raises `CallDenied`."""
        with self._faults:
            ability, judged = self._build_call(name, args)
            return self._permit(self.session.before(ability, judged), judged, args)

    async def abefore(self, name: str, args: Mapping[str, Any], *, wait: float | None = None) -> Permit:
        """Act like `before`, from a coroutine; wait *wait* seconds for a person, by default as long as the guard."""
        with self._faults:
            ability, judged = self._build_call(name, args)
            return self._permit(await self.session.abefore(ability, judged, wait=wait), judged, args)

    def after(self, permit: Permit, value: Any) -> Any:
        """Record the result of a call and return what the caller may see: *value*, unless a hook narrowed it.

        Raises `ResultWithheld`.
        """
        recorded = recorded_result(value)
        with self._faults:
            return _visible_result(self.session.after(permit.ticket, self._result(permit, recorded)), recorded, value)

    async def aafter(self, permit: Permit, value: Any) -> Any:
        """Act like `after`, from a coroutine."""
        recorded = recorded_result(value)
        with self._faults:
            result = await self.session.aafter(permit.ticket, self._result(permit, recorded))
            return _visible_result(result, recorded, value)

    def fail(self, permit: Permit, problem: BaseException, *, cancelled: bool = False) -> None:
        """Record that the tool raised *problem*; no `Exception` means *cancelled*, as does the caller's word."""
        name = permit.ticket.bound.id
        if isinstance(problem, Exception) and not cancelled:
            said = describe(problem, permit.ticket.bound.mask)
            code = "PROVIDER_ERROR" if permit.ticket.bound.kind == "model" else "TOOL_ERROR"
            outcome = Outcome("failed", error=fault(code, f"{name}: {said}"))
        else:
            outcome = Outcome("cancelled", error=fault("CANCELLED", f"{name} was cancelled: {describe(problem)}"))
        self.session.after(permit.ticket, outcome)

    def abandon(self, permit: Permit, why: str) -> None:
        """Record that the outcome of a call that began is not known, because of *why*."""
        lost = fault("OUTCOME_UNKNOWN", f"{permit.ticket.bound.id} was begun and its outcome is not known: {why}")
        self.session.after(permit.ticket, Outcome("unknown", error=lost))

    def note(self, event: str, said: Mapping[str, Any], permit: Permit | None = None) -> None:
        """Record an *event* about which no gate decides, such as the usage of a model (``bridge.told``).

        With *permit* it is an event of that call.
        """
        told = {"agent": self._agent, "event": event, "said": recorded_result(said)}
        self.session.note("bridge.told", "agent", told, cause=permit.ticket.span if permit else None)

    def declared_effects(self, name: str) -> str | None:
        """Return the effects of the tool *name* as the workspace declares them; ``None`` if it does not."""
        declared = self.session.bindings.entry_of(f"{self._agent}/{name}") if name not in _RESERVED else None
        return str(declared["effects"]) if declared else None

    def _result(self, permit: Permit, recorded: Json) -> Outcome:
        return Outcome("result", recorded, late=self.session.door.clock() > permit.ticket.deadline)

    def _build_call(self, name: str, args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the ability and the arguments to judge; an undeclared tool uses the ability `OTHER`."""
        if os.getpid() != self._process:
            why = "the process was forked after the conversation began; begin another one"
            raise BindingError(fault("SESSION_ENDED", f"session {self.id} belongs to another process: {why}"))
        given = as_json(args)
        if self.declared_effects(name) is not None or (self._unknown == "deny" and name not in _RESERVED):
            return f"{self._agent}/{name}", given
        return f"{self._agent}/{OTHER}", {"tool": name, "input": given}

    def _permit(self, opened: Result[Ticket], judged: Object, given: Mapping[str, Any]) -> Permit:
        if isinstance(opened, Err):
            raise CallDenied(opened)
        ticket = opened.value
        try:
            return Permit(self, ticket, self._args(ticket, judged, given))
        except BaseException as problem:
            why = fault("CANCELLED", f"{ticket.bound.id} was not begun: {describe(problem)}")
            self.session.after(ticket, Outcome("cancelled", error=why))
            raise

    def _args(self, ticket: Ticket, judged: Object, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments to use: the program's own objects, except where a hook changed them."""
        if ticket.raw == canonical.encode(dict(judged)):
            return dict(given)
        changed = canonical.decode(ticket.raw)
        if ticket.bound.id == f"{self._agent}/{OTHER}":
            if changed["tool"] != judged["tool"]:
                raise CallDenied(Err(_changed_tool(ticket)))
            judged, changed = judged["input"], changed["input"]
        return {name: given[name] if name in given and judged[name] == each else each for name, each in changed.items()}


def current(session_of: Callable[[Conversation], bool]) -> Conversation | None:
    """Return the innermost open conversation of this context that *session_of* accepts."""
    return next((each for each in reversed(_CURRENT.get()) if session_of(each) and not each.session.ended), None)


def _changed_tool(ticket: Ticket) -> DomainError:
    return fault("GATE_DENIED", f"{ticket.bound.id}: a hook changed the tool's name, and the program calls no other")


def _visible_result(result: Result[Json], recorded: Json, value: Any) -> Any:
    seen = _result(result)
    return value if seen is recorded or canonical.encode(seen) == canonical.encode(recorded) else seen


def _same_answer(result: Result[Json], recorded: Json, permit: Permit) -> None:
    """Raise `ResultWithheld` unless all of the *recorded* answer may be seen: the framework uses its own form."""
    seen = _result(result)
    if seen is not recorded and canonical.encode(seen) != canonical.encode(recorded):
        why = f"{permit.ticket.bound.id}: a hook changed the answer, and the framework uses its own"
        raise ResultWithheld(fault("GATE_DENIED", why))


def _result(result: Result[Json]) -> Any:
    if isinstance(result, Ok):
        return result.value
    raise ResultWithheld(result.error)
