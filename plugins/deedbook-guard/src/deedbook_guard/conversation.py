"""One conversation of a program: one session, whose calls are judged before they run and recorded afterwards."""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from inspect import isawaitable
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import attrs

from deedbook.call.handlers import Outcome, Ticket
from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import (
    BindingError,
    DeedbookError,
    DomainError,
    Err,
    IntakeError,
    Ok,
    Result,
    describe,
    fault,
    require_text,
)
from deedbook.policy.bound import OWN_MODEL
from deedbook.sessions.session import Session

from .completions import estimate_usage, recorded_request
from .copies import ActsLaterError, Copy, copy_argument
from .faults import FaultReport
from .values import as_json, recorded_result

OTHER: Final = "other"
"""The ability of all tools of a program that its workspace does not declare."""
_RESERVED: Final = (OTHER, OWN_MODEL)
"""Names under that of the program that are no tools of their own."""
Fits: TypeAlias = Callable[[dict[str, Any]], str | None]
"""Returns why a tool cannot be called with arguments that a hook changed; ``None`` if it can."""
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


@attrs.frozen(eq=False)
class _Request:
    """A call to judge: its *ability*, the arguments as *judged*, and their copy for the tool."""

    ability: str
    judged: dict[str, Any]
    copy: Copy
    fits: "Fits | None"


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

    def call(
        self,
        name: str,
        args: Mapping[str, Any],
        perform: Callable[[dict[str, Any]], Any],
        *,
        fits: Fits | None = None,
    ) -> Any:
        """Call *perform* with the arguments of the tool *name*, if the call is allowed; return its result.

        If *perform* returns an awaitable, so does this function, and the outcome is recorded when it is awaited. *fits*
        returns why *perform* cannot take arguments that a hook changed. Raises `CallDenied` if the call is not allowed,
        `ResultWithheld` if the result may not be seen, and what *perform* raises.
        """
        permit = self.before(name, args, fits=fits)
        try:
            value = perform(permit.args)
        except BaseException as problem:
            self.fail(permit, problem)
            raise
        return self._await_result(permit, value) if isawaitable(value) else self.after(permit, value)

    async def acall(
        self,
        name: str,
        args: Mapping[str, Any],
        perform: Callable[[dict[str, Any]], Awaitable[Any] | Any],
        *,
        fits: Fits | None = None,
    ) -> Any:
        """Act like `call`, from a coroutine; *perform* may return an awaitable. A cancelled task closes its call."""
        permit = await self.abefore(name, args, fits=fits)
        try:
            value = perform(permit.args)
        except BaseException as problem:
            self.fail(permit, problem)
            raise
        return await (self._await_result(permit, value) if isawaitable(value) else self.aafter(permit, value))

    async def _await_result(self, permit: Permit, value: Awaitable[Any]) -> Any:
        """Record the outcome of a tool when what it returned is awaited."""
        try:
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
        return self._require_unchanged(self._before_model(judged), judged, request)

    async def abefore_model(self, request: dict[str, Any], *, wait: float | None = None) -> Permit:
        """Act like `before_model`, from a coroutine; *wait* is as that of `abefore`."""
        judged = recorded_request(request)
        return self._require_unchanged(await self._abefore_model(judged, wait), judged, request)

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

    def _require_unchanged(self, permit: Permit, judged: dict[str, Any], request: dict[str, Any]) -> Permit:
        """Close and deny a request that is not what the framework sends: a hook changed it, or another thread."""
        if permit.ticket.raw != canonical.encode(judged):
            why = fault("GATE_DENIED", f"{self.model}: a hook changed the request, and the framework sends its own")
        elif not _is_same(judged, recorded_request(request)):
            why = fault("ARGUMENTS_CHANGED", f"{self.model}: the request changed while it was judged; send it again")
        else:
            return permit
        self.session.after(permit.ticket, Outcome("cancelled", error=why))
        raise CallDenied(Err(why))

    def _model_answer(self, permit: Permit, response: Object) -> Json:
        """Return the answer to record; a note says which counts of its usage are estimated."""
        answer, estimated = estimate_usage(permit.args, dict(response))
        if estimated:
            self.note("UsageEstimated", {"counts": estimated}, permit)
        return recorded_result(answer)  # type: ignore[no-any-return]

    # --- the parts of a call ------------------------------------------------------------------------------------------

    def before(self, name: str, args: Mapping[str, Any], *, fits: Fits | None = None) -> Permit:
        """Judge a call and record its intent; `after` or `fail` must follow. Raises `CallDenied`.

        The arguments are copied before they are judged, and the permit has the copy. An object that cannot be copied is
        compared before this returns: if its JSON form changed meanwhile, the call is closed and denied.
        """
        with self._faults:
            request = self._build_request(name, args, fits)
            return self._permit(self.session.before(request.ability, request.judged), request)

    async def abefore(
        self, name: str, args: Mapping[str, Any], *, wait: float | None = None, fits: Fits | None = None
    ) -> Permit:
        """Act like `before`, from a coroutine; wait *wait* seconds for a person, by default as long as the guard."""
        with self._faults:
            request = self._build_request(name, args, fits)
            return self._permit(await self.session.abefore(request.ability, request.judged, wait=wait), request)

    def after(self, permit: Permit, value: Any) -> Any:
        """Record the result of a call and return what the caller may see: *value*, unless a hook narrowed it.

        Raises `ResultWithheld`, also for a result that acts later, such as a generator: it is recorded as a failure.
        """
        recorded = self._final_result(permit, value)
        with self._faults:
            return _visible_result(self.session.after(permit.ticket, self._result(permit, recorded)), recorded, value)

    async def aafter(self, permit: Permit, value: Any) -> Any:
        """Act like `after`, from a coroutine."""
        recorded = self._final_result(permit, value)
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

    def _final_result(self, permit: Permit, value: Any) -> Json:
        """Return the result to record; one that acts later is closed, and recorded as a failure of the tool."""
        try:
            return recorded_result(value, is_final=True)  # type: ignore[no-any-return]
        except ActsLaterError as problem:
            why = f"{permit.ticket.bound.id} returned what cannot be recorded: {problem}; return its values"
            error = fault("TOOL_ERROR", why)
            self.session.after(permit.ticket, Outcome("failed", error=error))
            raise ResultWithheld(error) from None

    def _build_request(self, name: str, args: Mapping[str, Any], fits: Fits | None) -> _Request:
        """Return the call to judge; an undeclared tool uses the ability `OTHER`. Raises `CallDenied`."""
        if os.getpid() != self._process:
            why = "the process was forked after the conversation began; begin another one"
            raise BindingError(fault("SESSION_ENDED", f"session {self.id} belongs to another process: {why}"))
        name = require_text(name, "the name of a tool")
        is_known = self.declared_effects(name) is not None or (self._unknown == "deny" and name not in _RESERVED)
        ability = f"{self._agent}/{name if is_known else OTHER}"
        try:
            copy = copy_argument({require_text(each, "the name of an argument"): args[each] for each in args})
        except IntakeError as problem:
            raise CallDenied(self.session.refuse(ability, problem.error)) from None
        return _Request(ability, copy.json if is_known else {"tool": name, "input": copy.json}, copy, fits)

    def _permit(self, opened: Result[Ticket], request: _Request) -> Permit:
        if isinstance(opened, Err):
            raise CallDenied(opened)
        ticket = opened.value
        try:
            return Permit(self, ticket, self._args(ticket, request))
        except BaseException as problem:
            code = problem.error.code if isinstance(problem, DeedbookError) else "CANCELLED"
            reason = problem.error.message if isinstance(problem, DeedbookError) else describe(problem)
            why = fault(code, f"{ticket.bound.id} was not begun: {reason}")
            self.session.after(ticket, Outcome("cancelled", error=why))
            raise

    def _args(self, ticket: Ticket, request: _Request) -> dict[str, Any]:
        """Return the arguments to use: the copy, with what a hook changed. Raises `CallDenied`."""
        given, used = request.copy.json, request.copy.value
        if ticket.raw != canonical.encode(request.judged):
            changed = canonical.decode(ticket.raw)
            if ticket.bound.id == f"{self._agent}/{OTHER}":
                if changed["tool"] != request.judged["tool"]:
                    raise CallDenied(Err(_changed_tool(ticket)))
                changed = changed["input"]
            kept = {name for name, each in changed.items() if name in given and _is_same(given[name], each)}
            used = {name: used[name] if name in kept else each for name, each in changed.items()}
            if request.fits is not None and (why := request.fits(used)) is not None:
                why = f"{ticket.bound.id}: a hook changed the arguments, and {why}"
                raise CallDenied(Err(fault("GATE_DENIED", why)))
            given = {name: given[name] for name in kept}
        if request.copy.shared:
            _require_same(given, used, ticket)
        return dict(used)


def _is_same(judged: Json, other: Json) -> bool:
    """Return whether *other* is recorded as what was judged: for Python, ``1`` and ``True`` are equal."""
    try:
        return canonical.encode(judged) == canonical.encode(other)
    except IntakeError:
        return False


def _require_same(given: Mapping[str, Any], used: Mapping[str, Any], ticket: Ticket) -> None:
    """Raise `CallDenied` if an object among the arguments is no longer what was judged."""
    for name, judged in given.items():
        try:
            now = copy_argument(used[name]).json
        except IntakeError as problem:
            now = {"refused": problem.error.message}
        if not _is_same(judged, now):
            why = f"the argument {name!r} of {ticket.bound.id} changed while the call was judged; make the call again"
            raise CallDenied(Err(fault("ARGUMENTS_CHANGED", why)))


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
