"""The one door: start reading here.

Every effect goes through `Door.call` or `Door.acall`. If another program performs it, that program uses `Door.before`
and `Door.after`. The nine steps:

1. find the ability, 2. check the caller's scope, 3. validate the arguments, 4. ask rewriters, hooks and policies
   (these four are `judge.judge`; a refusal is recorded as ``tool.denied`` and ends here; if a person must decide, the
   call waits in `approval_wait`),
5. append the intent: durable before an effect, and covered by a checkpoint if one is required,
6. call the handler, within its time limit,
7. append the outcome,
8. ask ``PostToolUse`` hooks, which may narrow what the caller sees,
9. validate what the caller sees.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from math import inf
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from deedbook.contract import ALLOW, Approval, Call, Decision, Json, Object
from deedbook.contract.features import AllowedCall, CallPrevented, FactsChanged
from deedbook.format import canonical
from deedbook.format.errors import (
    ApprovalError,
    BindingError,
    DeedbookError,
    DomainError,
    Err,
    IntakeError,
    LedgerError,
    Ok,
    Result,
    fault,
    recordable,
    require_text,
)
from deedbook.format.events import Entry
from deedbook.format.reader import read
from deedbook.ledger.ledger import Ledger
from deedbook.plugins.features import SessionParts
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import DURABLE, BoundAbility, Caller
from deedbook.policy.gates import Answers, BoundGate, Clock, answer, decision_source, merge, refusal, source_place
from deedbook.policy.judge import DecisionContext, Verdict, encode_args, judge, make_call
from deedbook.policy.subjects import answer_subject, encode_subject, find_subject, subject_case, subject_payload

from .handlers import Interrupted, Outcome, RunSuspended, Ticket, aperform, perform, settle
from .open_calls import OpenCalls
from .records import CallRecorder

if TYPE_CHECKING:
    from .approval_wait import ApprovalWait, OpenResult
    from .pending_calls import Grant, PendingCall, PendingCalls

_ATTEMPTS: Final = 8
"""How often a call is judged again because facts changed before its intent was recorded."""


class FactReader(Protocol):
    """Reads the named facts as they are now, for a caller."""

    def __call__(self, names: frozenset[str], caller: Caller | None = None, /) -> Object:
        """Return the facts by name."""


@attrs.define(eq=False)
class IntentDraft:
    """An intent before it is recorded: its *span* and time, the arguments as *given*, and *settlements*.

    *settlements* are functions of features to call with the outcome, *held* what features hold until it is recorded.
    *approval* is the answer of the person who approved the call, if one was asked.
    """

    span: str
    now: str
    given: bytes
    settlements: tuple[Callable[[Outcome | None], None], ...] = ()
    held: ExitStack | None = None
    approval: Approval | None = None

    def release(self) -> None:
        """Tell the features that the call did not begin."""
        settle(self.settlements, None)


class Door:
    """The door of one session: decides under *bindings*, records in *ledger*.

    *facts* reads the facts that gates declare, *invoke* calls the handler of each kind, *clock* counts the seconds.
    *parts* are the functions of features: facts, and what is called before intents and effects. *calls* holds the
    tickets without a recorded outcome. If *is_uncertain*, an interrupt came during recording, and only the ledger shows
    which calls are open. If the session *suspends*, a run that needs a person, or is interrupted, stays open.
    *pending_calls* keeps calls that a person must decide.
    """

    def __init__(  # noqa: PLR0913 - all but the first two by name
        self,
        bindings: Bindings,
        ledger: Ledger,
        *,
        facts: FactReader,
        invoke: Mapping[str, Callable[[Ticket], Any]],
        clock: Clock,
        pending_calls: Callable[[], "PendingCalls"],
        deferred: bool = False,
        parts: SessionParts = SessionParts(),  # noqa: B008 - an immutable tuple
    ) -> None:
        self.bindings = bindings
        self.ledger = ledger
        self.clock = clock
        self.calls = OpenCalls(ledger, self._close)
        self.is_uncertain = False
        self.suspends = False
        self.recorder = CallRecorder(ledger, bindings.enforcement)
        self._parts = parts
        self._turn = RLock()
        self._decide_now = self._decide_repeatedly if parts.before_intents else self._decide_once
        self._decide = self._decide_in_turn if bindings.reads else self._decide_now
        self._record = self._record_enclosed if parts.around_intents else self._record_now
        durable = bindings.charter.document["durability"] == "always"
        self._always = durable or bindings.waits or bool(parts.before_intents or parts.around_intents)
        self._facts = facts
        self._invoke = invoke
        self._pending_calls = pending_calls
        self._deferred = deferred
        self._wait: ApprovalWait | None = None
        self._wait_lock = Lock()
        self._closed = False

    @property
    def approval_wait(self) -> "ApprovalWait":
        """The calls of this session that wait for a person; made when the first one does."""
        from .approval_wait import ApprovalWait

        with self._wait_lock:
            if self._wait is None:
                self._wait = ApprovalWait(
                    self._pending_calls(),
                    self.ledger,
                    self.recorder,
                    self.clock,
                    judge_again=self._judge_again,
                    closed=self._closed,
                    suspends=self.suspends,
                )
            return self._wait

    @property
    def open(self) -> Mapping[str, Ticket]:
        """The tickets that may still act, by span."""
        return self.calls.open

    @property
    def is_deferred(self) -> bool:
        """Whether the caller asks a person itself."""
        return self._deferred

    # --- all nine steps -----------------------------------------------------------------------------------------------

    def call(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Json]:
        """Use *ability* with *args* because of the event *cause* (a span); return the result or the error."""
        opened = self.before(caller, ability, args, cause)
        return opened if isinstance(opened, Err) else self.perform(opened.value)

    async def acall(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Json]:
        """Act like `call`, awaiting durable commits and asynchronous handlers."""
        opened = await self.abefore(caller, ability, args, cause)
        return opened if isinstance(opened, Err) else await self.aperform(opened.value)

    # --- steps 1 to 5 -------------------------------------------------------------------------------------------------

    def before(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Ticket]:
        """Decide and record the intent; with a ticket the effect may begin, and `after` must follow."""
        ability = require_text(ability, "ability")
        try:
            opened = self._begin(caller, ability, args, cause)
            return opened if isinstance(opened, Ok | Err) else self.approval_wait.wait(opened)
        except RunSuspended:
            raise
        except BaseException:
            if self._wait is not None:
                self._wait.abandon(caller)
            raise

    def _begin(self, caller: Caller, ability: str, args: Json, cause: str) -> "OpenResult":
        try:
            return self._decide(caller, ability, args, cause)
        except (IntakeError, BindingError) as problem:
            return self.refuse(caller, ability, problem.error, cause)
        except LedgerError as problem:
            return Err(problem.error)

    async def abefore(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Ticket]:
        """Act like `before`; durable commits, asynchronous hooks and a person's answer are awaited beside the loop.

        A cancelled caller gets no ticket, so a call that was opened meanwhile is closed as ``cancelled``.
        """
        from deedbook.format.loops import off_loop

        ability = require_text(ability, "ability")
        declared = self.bindings.entry_of(ability)
        opened: list[Any] = []
        try:
            if self._always or (declared is not None and declared["effects"] in DURABLE):
                await off_loop(lambda: opened.append(self._begin(caller, ability, args, cause)))
            else:
                opened.append(self._begin(caller, ability, args, cause))
            if not isinstance(opened[0], Ok | Err):
                await self.approval_wait.await_answer(opened.pop(), opened)
        except BaseException:
            self._cancel(opened)
            raise
        made: Result[Ticket] = opened[0]
        return made

    def _cancel(self, opened: list[Any]) -> None:
        """Close what was opened for a caller that was cancelled meanwhile."""
        for each in opened:
            if isinstance(each, Err):
                continue
            if not isinstance(each, Ok):
                self.approval_wait.withdraw(each)
                each.close()
            else:
                self._close_cancelled(each.value)

    def resume(self, caller: Caller, ability: str, args: Json, cause: str, grant: "Grant") -> Result[Json]:
        """Act like `call` for a call that a person approved, and use the approval up.

        *cause* is the request's span in this session; a call that still needs a person is denied.
        """
        try:
            opened = self._decide(caller, ability, args, self.approval_wait.record_grant(caller, cause, grant), grant)
        except DeedbookError as problem:
            return Err(problem.error)
        if not isinstance(opened, Ok | Err):
            return self.approval_wait.deny_late(opened, self.ledger.now())
        return opened if isinstance(opened, Err) else self.perform(opened.value)

    def refuse(self, caller: Caller, ability: str, error: DomainError, cause: str) -> Err:
        """Record a refusal before any judging, and return it, or the error of recording it."""
        declared = self.bindings.entry_of(ability)
        kind = declared["kind"] if declared else "tool"
        try:
            self.ledger.append([self.recorder.refusal(kind, ability, error, caller, cause)])
        except LedgerError as problem:
            return Err(problem.error)
        return Err(error)

    def decide(self, caller: Caller, policy: str, subject: str, value: Object, cause: str) -> tuple[Object, str]:
        """Ask *policy* about a subject because of the event *cause*, and record the answer.

        Returns the payload of the recorded ``policy.check`` and its span; raises `Failed` for what *policy* cannot
        judge.
        """
        bound = find_subject(self.bindings.subjects, policy, subject)
        raw = encode_subject(bound, value)
        with self._turn if bound.gate.reads else nullcontext():
            now, session = self.ledger.now(), self.ledger.session_id
            facts = self._facts(bound.gate.reads, caller) if bound.gate.reads else {}
            case = subject_case(bound, raw, caller, self.bindings.enforcement, session, now, facts)
            payload = subject_payload(bound, answer_subject(bound, self.clock, case), case, raw)
            entry = self.recorder.note("policy.check", "policy", caller, cause, payload)
            self.ledger.append([entry], ts=now)
        recorded: Object = canonical.decode(entry.payload)
        return recorded, entry.span

    def _decide_in_turn(
        self, caller: Caller, ability: str, args: Json, cause: str, grant: "Grant | None" = None
    ) -> "OpenResult":
        """Keep facts unchanged until the intent that depends on them is recorded."""
        with self._turn:
            return self._decide_now(caller, ability, args, cause, grant)

    def _decide_repeatedly(
        self, caller: Caller, ability: str, args: Json, cause: str, grant: "Grant | None" = None
    ) -> "OpenResult":
        """Judge again as long as facts change between the judgement and the intent."""
        for _ in range(_ATTEMPTS):
            with suppress(FactsChanged):
                return self._decide_once(caller, ability, args, cause, grant)
        why = f"what the gates of {ability} read changed {_ATTEMPTS} times while it was judged; try again"
        raise LedgerError(fault("LEDGER_LOCKED", why, retryable=True))

    def _decide_once(
        self, caller: Caller, ability: str, args: Json, cause: str, grant: "Grant | None" = None
    ) -> "OpenResult":
        bound = self.bindings.find(ability)
        raw = encode_args(bound, args)
        now = self.ledger.now()
        facts = self._facts(bound.reads, caller) if bound and bound.reads else {}
        context = DecisionContext(now, self.ledger.session_id, facts, grant.approved if grant else None)
        verdict = self._judge(caller, ability, bound.judged_args(raw) if bound else raw, context)
        entries = self.recorder.decision_entries(verdict, caller, facts, cause)
        bound = verdict.bound
        if bound is None or verdict.outcome == "deny":
            return self._deny(verdict, caller, ability, cause, entries, now)
        return self._record(verdict, bound, caller, context, cause, raw, entries, grant)

    def _record_enclosed(  # noqa: PLR0913 - all that the judgement has brought together
        self, verdict: Verdict, bound: BoundAbility, caller: Caller, context: DecisionContext, cause: str,
        raw: bytes, entries: list[Entry], grant: "Grant | None",
    ) -> "OpenResult":  # fmt: skip
        """Act like `_record_now` inside the context managers of features, each of which may deny the call."""
        with ExitStack() as held:
            try:
                for enclose in self._parts.around_intents:
                    held.enter_context(enclose(caller, bound.id))
            except CallPrevented as problem:
                verdict.deny(problem.code, recordable(str(problem)))
                return self._deny(verdict, caller, bound.id, cause, entries, context.now)
            return self._record_now(verdict, bound, caller, context, cause, raw, entries, grant, held)

    def _record_now(  # noqa: PLR0913 - all that the judgement has brought together
        self, verdict: Verdict, bound: BoundAbility, caller: Caller, context: DecisionContext, cause: str,
        raw: bytes, entries: list[Entry], grant: "Grant | None", held: ExitStack | None = None,
    ) -> "OpenResult":  # fmt: skip
        """Record what follows from a verdict that denies nothing: the intent, or the request for a person."""
        if verdict.outcome == "ask" and not self._deferred:
            return self.approval_wait.request_approval(verdict, bound, caller, raw, cause, entries)
        draft = self._reserve(verdict, bound, caller, context, raw, held)
        if verdict.outcome == "ask":
            return Ok(self._defer(verdict, bound, caller, cause, entries, draft))
        if grant and not self._use(grant, verdict, context.now, draft):
            return self._deny(verdict, caller, bound.id, cause, entries, context.now)
        draft.approval = grant.approval if grant else None
        return Ok(self._open(verdict, bound, caller, cause, entries, draft))

    def _deny(self, verdict: Verdict, caller: Caller, ability: str, cause: str, entries: list[Entry], now: str) -> Err:
        """Record that the call is denied, after *entries*, and return why."""
        entries.append(self.recorder.denial(verdict, caller, ability, cause))
        self.ledger.append(entries, ts=now)
        return Err(fault(verdict.code, verdict.reason, place=source_place(verdict.by)), {"signals": verdict.signals})

    def _reserve(
        self, verdict: Verdict, bound: BoundAbility, caller: Caller, context: DecisionContext, given: bytes,
        held: ExitStack | None,
    ) -> IntentDraft:  # fmt: skip
        """Let the features reserve what the call may use; raises `FactsChanged`, and `LedgerError` to prevent it."""
        draft = IntentDraft(self.ledger.span(), context.now, given, (), held)
        if not self._parts.before_intents:
            return draft
        call = make_call(self.bindings, caller, bound, canonical.decode(verdict.raw), verdict.raw, context)
        answers = {gate.id: decision.outcome for gate, decision in verdict.policies}
        allowed = AllowedCall(call=call, caller=caller, span=draft.span, answers=answers)
        try:
            for ask in self._parts.before_intents:
                settlement = ask(allowed)
                if settlement is not None:
                    draft.settlements = (*draft.settlements, settlement)
        except BaseException:
            draft.release()
            raise
        return draft

    def _judge_again(self, pending: "PendingCall", cause: str, grant: "Grant | None") -> "OpenResult":
        """Judge a pending call again, with its original arguments; facts and gates may have changed."""
        return self._decide(pending.caller, pending.bound.id, canonical.decode(pending.given), cause, grant)

    def _use(self, grant: "Grant", verdict: Verdict, now: str, draft: IntentDraft) -> bool:
        """Use the approval up, durably; if it was used before, *verdict* denies. Return whether the call may begin."""
        try:
            self.approval_wait.use(grant, self.ledger.session_id, now)
        except DeedbookError as problem:
            draft.release()
            if not isinstance(problem, ApprovalError):
                raise
            verdict.deny(problem.error.code, problem.error.message)
            return False
        return True

    def _judge(self, caller: Caller, ability: str, raw: bytes, context: DecisionContext) -> Verdict:
        """Drive `judge`: run the gates that it does not ask itself."""
        judging = judge(self.bindings, caller, ability, canonical.decode(raw), raw, context, self.clock)
        try:
            gate, call = next(judging)
            while True:
                gate, call = judging.send(answer(gate, self.clock, call))
        except StopIteration as done:
            verdict: Verdict = done.value
            return verdict

    def _defer(
        self, verdict: Verdict, bound: BoundAbility, caller: Caller, cause: str, entries: list[Entry],
        draft: IntentDraft,
    ) -> Ticket:  # fmt: skip
        """Open a call whose agent asks a person; the deferral and the intent are durable before the effect."""
        left = self.approval_wait.deferral(verdict, bound, caller, cause)
        ticket = self._open(verdict, bound, caller, left.span, [*entries, left], draft)
        ticket.asked = recordable(verdict.reason)
        return ticket

    def _open(
        self, verdict: Verdict, bound: BoundAbility, caller: Caller, cause: str, entries: list[Entry],
        draft: IntentDraft,
    ) -> Ticket:  # fmt: skip
        span, begun = draft.span, False
        entries.append(self.recorder.intent(bound, verdict, caller, span, cause))
        args = bound.handler_args(verdict.args, draft.given)
        ticket = Ticket(bound, caller, args, verdict.raw, span, self.ledger.session_id, inf)
        ticket.settlements, ticket.approval = draft.settlements, draft.approval
        if verdict.hooks or verdict.rewrites:
            ticket.signals = verdict.signals
        try:
            self.calls.announce(span)
            begun = True
            self.ledger.append(entries, ts=draft.now, durable=bound.durable or verdict.outcome == "ask")
            ticket.deadline = self.clock() + bound.timeout  # the time of the disk does not count for the handler
            self.calls.add(ticket)
            if draft.held is not None:
                draft.held.close()
            for ask in self._parts.before_effects.get(bound.effects, ()):
                self._ask_feature(ticket, ask)
        except DeedbookError as problem:
            self.calls.settle(span)
            if not begun or isinstance(problem, IntakeError):  # any other error may have left the intent in the file
                ticket.settle(None)
            raise
        except BaseException:
            self._abandon(ticket)
            raise
        return ticket

    def _ask_feature(self, ticket: Ticket, ask: Callable[[Ticket], None]) -> None:
        """Ask a feature whether the effect may begin; raises `LedgerError`, with the call closed as not started."""
        try:
            ask(ticket)
        except LedgerError as problem:
            why = fault(problem.error.code, f"{ticket.bound.id} was not begun: {problem.error.message}")
            ticket.settle(None)
            self.after(ticket, Outcome("failed", error=why))
            raise LedgerError(why) from problem

    def _abandon(self, ticket: Ticket) -> None:
        """Close a call whose recording was interrupted, if its intent was recorded: nothing was started."""
        was_certain, self.is_uncertain = not self.is_uncertain, True
        self.calls.settle(ticket.span)
        with suppress(DeedbookError, OSError):
            if any(event.span == ticket.span for event in read(self.ledger.place)):
                self.calls.add(ticket)
                self._close_cancelled(ticket)
            self.is_uncertain = not was_certain

    def _close_cancelled(self, ticket: Ticket) -> None:
        """Close an opened call that was cancelled before it began."""
        why = fault("CANCELLED", f"{ticket.bound.id} was cancelled before it began")
        ticket.settle(None)
        self.after(ticket, Outcome("cancelled", error=why))

    # --- step 6 -------------------------------------------------------------------------------------------------------

    def perform(self, ticket: Ticket) -> Result[Json]:
        """Invoke the handler of an opened call and close the ticket with its outcome (steps 6 to 9)."""
        if ticket.span not in self.open:
            return _closed_error(ticket)
        try:
            outcome = perform(ticket, self._invoke[ticket.bound.kind], self.clock)
        except Interrupted as stop:
            self._interrupt(ticket, stop)
            raise stop.cause from None
        return self.after(ticket, outcome)

    async def aperform(self, ticket: Ticket) -> Result[Json]:
        """Act like `perform`, awaiting an asynchronous handler."""
        if ticket.span not in self.open:
            return _closed_error(ticket)
        try:
            outcome = await aperform(ticket, self._invoke[ticket.bound.kind], self.clock)
        except Interrupted as stop:
            self._interrupt(ticket, stop)
            raise stop.cause from None
        return await self.aafter(ticket, outcome)

    def _interrupt(self, ticket: Ticket, stop: Interrupted) -> None:
        """Close an interrupted call; a run stays open if it can be resumed."""
        if not (self.suspends and ticket.bound.kind == "flow" and isinstance(stop.cause, KeyboardInterrupt)):
            self.after(ticket, stop.outcome)

    # --- steps 7 to 9 -------------------------------------------------------------------------------------------------

    def after(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        """Record the outcome of the call and return what the caller sees; a ticket is closed once.

        An outcome that cannot be written is ``OUTCOME_UNKNOWN``; it is recorded as that once writing works again.
        """
        if self.calls.lost:
            self.calls.record_lost()
        return self._close(ticket, outcome)

    async def aafter(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        """Act like `after`; a durable commit is awaited beside the loop, and a cancellation waits for it."""
        if not self._always:
            return self.after(ticket, outcome)
        from deedbook.format.loops import off_loop

        return await off_loop(self.after, ticket, outcome)

    def _close(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        try:
            if not self.calls.take(ticket):
                return _closed_error(ticket)
            return (
                self._record_result(ticket, outcome) if outcome.end == "result" else self._record_error(ticket, outcome)
            )
        except DeedbookError as problem:
            if ticket.outcome is not None:  # recorded, without the answers of hooks or schema
                return Err(problem.error)
            self.calls.lose(ticket)
            why = f"{ticket.bound.id} was begun and its outcome is not recorded: {problem}"
            return Err(fault("OUTCOME_UNKNOWN", why))
        except BaseException:
            self.is_uncertain = True
            self.calls.settle(ticket.span)
            raise
        finally:
            if ticket.outcome is not None and ticket.settlements:
                ticket.settle(outcome)

    def _record_result(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        try:
            raw = canonical.admit(outcome.value)
            entry = self.recorder.result(ticket, raw, late=outcome.late)
            self.ledger.append(
                [entry, *self.recorder.noted_events(ticket, entry, outcome)] if outcome.events else [entry]
            )
        except IntakeError as problem:
            why = fault(problem.error.code, f"{ticket.bound.id} returned what cannot be recorded: {problem}")
            return self._record_error(ticket, Outcome("failed", error=why))
        self.calls.finish(ticket, entry.span, "result")
        seen = canonical.decode(raw)
        return self._observe(ticket, seen, raw) if ticket.bound.observers else self._check(ticket, seen)

    def _record_error(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        error = outcome.error or fault("TOOL_ERROR", f"{ticket.bound.id} failed without a reason")
        entry = self.recorder.error(ticket, outcome, error)
        self.ledger.append([entry, *self.recorder.noted_events(ticket, entry, outcome)])
        self.calls.finish(ticket, entry.span, outcome.end)
        return Err(error, {"outcome": outcome.end})

    def _observe(self, ticket: Ticket, result: Json, raw: bytes) -> Result[Json]:
        """Step 8. A failing hook may have been the one that redacts, so the caller then gets nothing."""
        context = DecisionContext(self.ledger.now(), ticket.session, {})
        call = make_call(self.bindings, ticket.caller, ticket.bound, canonical.decode(ticket.raw), ticket.raw, context)
        asked: Answers = []
        seen = raw
        for gate in ticket.bound.observers:
            if gate.applies is None or gate.applies(call):
                seen, decision = _narrow(gate, self.clock, call, seen)
                asked.append((gate, decision))
        if asked:
            self.ledger.append(self.recorder.observation(ticket, asked, None if seen == raw else seen), ts=context.now)
        failed = merge(asked)
        if failed is not None:
            why = f"the result of {ticket.bound.id} is withheld: {failed[1].reason}"
            return Err(fault("GATE_DENIED", why, place=source_place(decision_source(*failed))))
        return self._check(ticket, result if seen == raw else canonical.decode(seen))

    def _check(self, ticket: Ticket, result: Json) -> Result[Json]:
        """Step 9. The recorded result stays; a result that does not match its schema does not reach the caller."""
        bound = ticket.bound
        if bound.gives.valid(result):
            return Ok(result)
        violations = bound.gives.violations(result)
        who = ticket.caller.principal.id
        self.ledger.append([self.recorder.violation("result", bound, violations, who, ticket.span)])
        first = f"{violations[0].path}: {violations[0].message}" if violations else "does not fit"
        return Err(fault("SCHEMA_VIOLATION", f"the result of {bound.id}: {first}"))

    def close(self) -> None:
        """Open no more tickets, and record every open one as ``unknown``; raises as `OpenCalls.close`."""
        with self._wait_lock:
            self._closed = True
            if self._wait is not None:
                self._wait.closed = True
        self.calls.close()


def _closed_error(ticket: Ticket) -> Err:
    """Return the error that a call has its outcome already."""
    return Err(
        fault("OUTCOME_UNKNOWN", f"{ticket.bound.id} (call {ticket.span}) is closed; see the ledger for its outcome")
    )


_NARROWED = Decision("transform", "narrowed the result")


def _narrow(gate: BoundGate, clock: Clock, call: Call, raw: bytes) -> tuple[bytes, Decision]:
    """Ask one observer about a copy of the result; return the canonical result it leaves, and its decision."""
    decision = answer(gate, clock, call, canonical.decode(raw))
    if decision.outcome == "deny":
        return raw, decision
    try:
        left = canonical.admit(decision.args["result"] if decision.args is not None else None)
    except IntakeError as problem:
        return raw, refusal(f"returned what cannot be recorded: {problem}")
    return left, ALLOW if left == raw else _NARROWED
