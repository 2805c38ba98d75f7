"""The journal of a resumed run: the recorded answers first, then, from the first request without a record, new ones.

While the record lasts, nothing is appended, and no gate, hook, model or clock is asked. Requests match by their
position in their branch, then by kind, name and the arguments as the flow gave them; anything else suspends the run
again with ``RESUME_DIVERGED``.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from threading import Lock
from typing import Any, Final, NoReturn, TypeAlias

import attrs

from deedbook.call.call_context import failure, value_of
from deedbook.call.door import Door
from deedbook.call.handlers import RunSuspended, Ticket
from deedbook.call.pending_calls import OpenAnswer, caller_of, read_approval
from deedbook.contract import Approval, Event, Failed, Json, Object
from deedbook.format.canonical import admit, encode, encode_payload
from deedbook.format.errors import DeedbookError, DomainError, Err, IntakeError, Ok, Result, fault
from deedbook.format.sealed import MASK_PREFIX, Sealer
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Caller, Persona
from deedbook.policy.subjects import encode_subject, find_subject
from deedbook.sessions.hooks import HookResult, read_refusal, read_result
from deedbook.sessions.run_journal import RunJournal, Write

from .differences import find_differences
from .parent import ParentSession, ValueMissing
from .requests import Request, RunRequests, decision_name, given_arguments, list_charters

BindCharter: TypeAlias = Callable[[str], Bindings]
_MOST: Final = 3


class RunRecord:
    """The recorded requests of a session: *requests*, and the session from which sealed values are opened.

    *find_answer* finds the answer of a person, *bind* binds an earlier charter by its digest, without handlers.
    """

    def __init__(
        self, parent: ParentSession, sealer: Sealer, find_answer: Callable[[str], OpenAnswer | None], bind: BindCharter
    ) -> None:
        self.parent, self.sealer, self.find_answer = parent, sealer, find_answer
        self.requests = RunRequests(parent.events)
        self._charters = list_charters(parent.events)
        self._bind = cache(bind)

    def journal(self, door: Door, record: Write, span: str) -> RunJournal:
        """Return the journal of what stands under *span*."""
        found = self.requests.branches.get(span)
        return ReplayJournal(door, record, span, self, found) if found else RunJournal(door, record, span)

    def bindings_at(self, request: Request, now: Bindings) -> Bindings:
        """Return the charter under which *request* was made: *now*, or an earlier one; suspends if that is missing."""
        digest = next(charter for seq, charter in reversed(self._charters) if seq <= request.event.seq)
        if digest == now.charter.digest:
            return now
        try:
            found = self._bind(digest)
        except (DeedbookError, OSError) as problem:
            why = f"charter {digest}, under which event {request.event.seq} was recorded, cannot be read: {problem}"
            raise _suspension("RESUME_INCOMPLETE", why) from None
        return attrs.evolve(found, persona=partial(_read_persona, found.persona))

    def open(self, value: Any, event: Event) -> Any:
        """Return *value* with its sealed parts opened; suspends the run if a part is missing or was a secret."""
        try:
            found = self.parent.open_value(value)
        except ValueMissing as problem:
            raise _suspension("RESUME_INCOMPLETE", self._describe_missing(event, str(problem))) from None
        if MASK_PREFIX.encode() in encode(found):
            raise _suspension(
                "RESUME_INCOMPLETE", self._describe_missing(event, "it held a secret, which no record keeps")
            )
        return found

    def find_approval(self, call: Event) -> Approval | None:
        """Return the answer of the person who approved *call*, if one was asked."""
        above = (event for event in self.parent.events if event.span == call.parent)
        granted = next((event for event in above if event.type == "approval.granted"), None)
        return None if granted is None else read_approval(self.open(dict(granted.payload), granted))

    def open_arguments(self, value: Any) -> Any:
        """Return recorded arguments for a comparison; secrets stay marked on both sides."""
        try:
            return self.parent.open_value(value)
        except ValueMissing as problem:
            raise _suspension("RESUME_INCOMPLETE", f"arguments cannot be compared: {problem}") from None

    def _describe_missing(self, event: Event, why: str) -> str:
        return f"event {event.seq} cannot be given to the run again: {why}"


class ReplayJournal(RunJournal):
    """Gives the recorded answers of one branch."""

    def __init__(self, door: Door, record: Write, span: str, run: RunRecord, requests: list[Request]) -> None:
        super().__init__(door, record, span)
        self._told, self._requests = run, requests
        self._at = 0
        self._turn = Lock()

    @property
    def bindings(self) -> Bindings:
        """The charter under which the next request was recorded; after the last one, the charter in force."""
        with self._turn:
            due = self._due()
        return self._told.bindings_at(due, self._door.bindings) if due else self._door.bindings

    # --- requests -----------------------------------------------------------------------------------------------------

    def request(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Any]:
        """Give the recorded result of a call, or make it."""
        found = self._take_call(ability, args)
        if found is None:
            return super().request(caller, ability, args, cause)
        if found.is_open_run:
            return self._door.perform(self._ticket(caller, found))
        return self._answer(found)

    async def arequest(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Any]:
        """Act like `request`, from a coroutine."""
        found = self._take_call(ability, args)
        if found is None:
            return await super().arequest(caller, ability, args, cause)
        if found.is_open_run:
            return await self._door.aperform(self._ticket(caller, found))
        return self._answer(found)

    def ask_model(self, caller: Caller, ability: str, request: Object, cause: str) -> tuple[dict[str, Any], str | None]:
        """Give the recorded response of a model, or ask it."""
        found = self._take_call(ability, dict(request))
        if found is None:
            return super().ask_model(caller, ability, request, cause)
        response: Any = value_of(self._answer(found))
        return response, found.outcome.span if found.outcome else None

    def refuse(self, caller: Caller, ability: str, error: DomainError, cause: str) -> None:
        """Give the recorded refusal, or record one."""
        found = self._next("call", ability)
        if found is None:
            return super().refuse(caller, ability, error, cause)
        raise failure(Err(error))

    def write(self, event_type: str, actor: str, payload: Object, cause: str | None = None) -> str:
        """Return the span of the recorded event, or record it."""
        found = self._next("event", event_type, dict(payload), lambda request: dict(request.event.payload))
        return found.event.span if found else super().write(event_type, actor, payload, cause)

    def fire(self, event: str, subject: Object, ask: Callable[[], HookResult]) -> HookResult:
        """Give the recorded answer of hooks; where none was asked, none is asked now."""
        with self._turn:
            due = self._due()
            if due is None:
                return ask()
            if due.kind != "hook" or due.name != event:
                return HookResult(subject=subject)
            self._at += 1
        return read_result(self._told.open(dict(due.event.payload), due.event), subject)

    def decide(
        self, policy: str, subject: str, value: Object, ask: Callable[[], tuple[Object, str]]
    ) -> tuple[Object, str]:
        """Give the recorded answer of a policy about a subject, or ask it."""
        name = decision_name(policy, subject)
        try:
            found = self._next("decision", name, value, lambda request: request.event.payload["subject"]["value"])
        except (RunSuspended, IntakeError):
            # a value that was refused before has no record
            encode_subject(find_subject(self.bindings.subjects, policy, subject), value)
            raise
        if found is None:
            return super().decide(policy, subject, value, ask)
        return self._told.open(dict(found.event.payload), found.event), found.event.span

    def value(self, kind: str, make: Callable[[], Json]) -> Json:
        """Give the recorded value, or make one."""
        found = self._next("event", "run.value")
        if found is None:
            return super().value(kind, make)
        payload = self._told.open(dict(found.event.payload), found.event)
        if payload.get("kind") != kind:
            self._diverge(found, f"a value of the kind {kind!r} was asked for; the record has {payload.get('kind')!r}")
        value: Json = payload["value"]
        return value

    def next_request_seq(self) -> int | None:
        """Return the number of the event of the next recorded request, if there is one."""
        with self._turn:
            due = self._due()
        return due.event.seq if due else None

    def under(self, span: str) -> RunJournal:
        """Return the journal of a branch, recorded or new."""
        return self._told.journal(self._door, self._record, span)

    # --- matching -----------------------------------------------------------------------------------------------------

    def _due(self) -> Request | None:
        """Return the next request of the record, without those that are made again; the caller holds the turn."""
        while self._at < len(self._requests) and self._is_repeated(self._requests[self._at]):
            self._at += 1
        return self._requests[self._at] if self._at < len(self._requests) else None

    def _is_repeated(self, request: Request) -> bool:
        """Return whether a lost call without an effect is made again."""
        is_unknown = request.is_unknown(last=request is self._requests[-1])
        return is_unknown and not request.is_flow and not request.may_have_effects(self._door.bindings)

    def _next(
        self, kind: str, name: str, given: Any = None, recorded: Callable[[Request], Any] | None = None
    ) -> Request | None:
        """Take the next request, which must be of this kind, name and value; ``None`` after the last one."""
        with self._turn:
            due = self._due()
            if due is None:
                return None
            kinds = (kind, "approval") if kind == "call" else (kind,)
            if due.kind not in kinds or due.name != name:
                self._diverge(due, f"{name} was asked for")
            if recorded is not None:
                self._compare(due, given, recorded(due))
            self._at += 1
            return due

    def _take_call(self, ability: str, args: Json) -> Request | None:
        found = self._next("call", ability, args, given_arguments)
        if found is not None and found.kind == "approval":
            return self._apply_answer(found)
        return found

    def _apply_answer(self, request: Request) -> Request | None:
        """Return ``None`` if the call must be judged again; suspend the run as long as there is no answer."""
        if request.settled is not None:
            return request
        found = self._told.find_answer(str(request.event.payload.get("approval")))
        if found is None:
            return None
        if found.record is None:
            raise RunSuspended(found.error, str(request.event.payload.get("approval")))
        caller = caller_of(request.event.payload)
        raise failure(self._door.approval_wait.deny_suspended(request.event, caller, found.error, found.record))

    def _compare(self, request: Request, given: Any, recorded: Any) -> None:
        if recorded is None:
            return  # a refusal before any judging records no arguments
        raw = self._told.sealer.scrub(admit(given))
        arguments = self._told.open_arguments(recorded)
        known = encode_payload(arguments)
        if known == raw or known == self._judged_args(request, raw):
            return
        found = [str(each) for each in find_differences(arguments, given)][:_MOST]
        self._diverge(request, f"{request.name} was asked for otherwise: {'; '.join(found) or 'values differ'}")

    def _judged_args(self, request: Request, raw: bytes) -> bytes:
        """Return arguments as they were judged: with the paths of a server relative to the workspace."""
        if request.kind in ("event", "decision"):
            return raw
        bound = self._told.bindings_at(request, self._door.bindings).find(request.name)
        return bound.judged_args(raw) if bound else raw

    def _diverge(self, request: Request, why: str) -> NoReturn:
        place = f"event {request.event.seq} of session {self._told.parent.session}"
        raise _suspension("RESUME_DIVERGED", f"{why}; {place} is {request.event.type} of {request.name}")

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Result[Any]:
        """Return what the caller of a recorded call saw."""
        payload = request.event.payload
        if request.settled is not None:
            return Ok(self._told.open(request.settled.payload.get("result"), request.settled))
        if request.is_denied:
            return Err(fault(str(payload.get("code")), str(payload.get("reason"))))
        ended = request.outcome
        if ended is None or request.is_unknown(last=request is self._requests[-1]):
            why = (
                f"{request.name} was begun by event {request.event.seq}, and no record says what came of it; find out, "
                f"then give its result: deedbook resume {self._told.parent.session} --result JSON"
            )
            raise RunSuspended(fault("NEEDS_HUMAN", why))
        payload = self._told.open(dict(ended.payload), ended)
        if "outcome" in payload:
            error = fault(str(payload["code"]), str(payload["message"]), retryable=payload["retryable"] is True)
            return Err(error, {"outcome": payload["outcome"]})
        return self._visible_result(request, payload["response" if ended.type == "llm.response" else "result"])

    def _visible_result(self, request: Request, result: Any) -> Result[Any]:
        """Return the result as ``PostToolUse`` hooks and the schema left it."""
        if request.seen is not None:
            fired = self._told.open(dict(request.seen.payload), request.seen)
            if fired.get("decision") in ("deny", "ask"):
                reason = read_refusal(fired)
                return Err(fault("GATE_DENIED", f"the result of {request.name} is withheld: {reason}"))
            result = fired.get("output", result)
        if request.violation is not None:
            first = self._told.open(dict(request.violation.payload), request.violation)["errors"][:1]
            problem = f"{first[0]['path']}: {first[0]['message']}" if first else "does not fit"
            return Err(fault("SCHEMA_VIOLATION", f"the result of {request.name}: {problem}"))
        return Ok(result)

    def _ticket(self, caller: Caller, request: Request) -> Ticket:
        """Return the open ticket of a recorded call of a flow, with its own span, so that the flow is called again."""
        bound = self._door.bindings.find(request.name)
        if bound is None:
            raise _suspension("RESUME_DIVERGED", f"the flow {request.name} is not there any more")
        args = self._told.open(request.event.payload.get("args"), request.event)
        span, session = request.event.span, self._door.ledger.session_id
        ticket = Ticket(bound, caller, args, encode_payload(args), span, session, self._door.clock() + bound.timeout)
        ticket.approval = self._told.find_approval(request.event)
        self._door.calls.announce(span)
        self._door.calls.add(ticket)
        return ticket


def _read_persona(read: Persona, name: str, card: Mapping[str, Any]) -> str:
    """Return the persona of an earlier charter; suspends the run if its file is not the same any more."""
    try:
        return read(name, card)
    except Failed as problem:
        raise _suspension("RESUME_INCOMPLETE", f"the persona of the recorded run cannot be read: {problem}") from None


def _suspension(code: str, why: str) -> RunSuspended:
    return RunSuspended(fault(code, why))
