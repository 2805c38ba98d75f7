"""The one door: start reading here.

Every effect asked of the kernel goes through `Door.call` or `Door.acall`, or, where the effect is somebody else's,
through `Door.before` and `Door.after`. The nine steps:

1. find the ability, 2. check the caller's scope, 3. validate the arguments, 4. ask rewriters, hooks and policies
   (these four are `judge.judge`; a refusal is recorded as ``tool.denied`` and ends here),
5. append the intent, durable first when there are effects,
6. invoke the handler, within its limit,
7. append the outcome,
8. let ``PostToolUse`` hooks observe, or narrow what the caller sees,
9. validate what the caller sees.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from . import canonical
from .bindings import Bindings, Bound, Caller
from .contracts import ALLOW, Call, Decision, Json, Object
from .errors import Err, IntakeError, LedgerError, Ok, Result, fault
from .events import Entry
from .gates import Asked, BoundGate, Clock, answer, refusal
from .handlers import Interrupted, Outcome, Ticket, aperform, off_loop, perform
from .judge import Circumstances, Verdict, judge, make_call
from .ledger import Ledger
from .records import Scribe

Facts: TypeAlias = Callable[[frozenset[str]], Object]
"""Reads the named facts of the session, as the ledger holds them now."""


class Door:
    """The door of one session: decides under *bindings*, records in *ledger*.

    *facts* reads what gates declare, *contexts* makes each kind's ``ctx`` for a handler, *clock* counts the seconds.
    """

    def __init__(
        self,
        bindings: Bindings,
        ledger: Ledger,
        *,
        facts: Facts,
        contexts: Mapping[str, Callable[[Ticket], Any]],
        clock: Clock,
    ) -> None:
        self.bindings = bindings
        self.ledger = ledger
        self.clock = clock
        self.open: dict[str, Ticket] = {}
        self.scribe = Scribe(ledger, bindings.enforcement)
        self._facts = facts
        self._contexts = contexts

    # --- the whole way ------------------------------------------------------------------------------------------------

    def call(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Json]:
        """Use *ability* with *args* because of the event *cause* (a span); return the result, or why there is none."""
        opened = self.before(caller, ability, args, cause)
        if isinstance(opened, Err):
            return opened
        return self.perform(opened.value)

    async def acall(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Json]:
        """Do what `call` does, awaiting durable commits and asynchronous handlers."""
        opened = await self.abefore(caller, ability, args, cause)
        if isinstance(opened, Err):
            return opened
        return await self.aperform(opened.value)

    # --- steps 1 to 5 -------------------------------------------------------------------------------------------------

    def before(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Ticket]:
        """Decide and record the intent; with a ticket the effect may begin, and `after` must follow."""
        try:
            return self._before(caller, ability, args, cause)
        except LedgerError as problem:
            return Err(problem.error)

    async def abefore(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Ticket]:
        """Do what `before` does; a durable commit is awaited beside the event loop."""
        bound = self.bindings.abilities.get(ability)
        if bound is None or not bound.durable:
            return self.before(caller, ability, args, cause)
        return await off_loop(self.before, caller, ability, args, cause)

    def _before(self, caller: Caller, ability: str, args: Json, cause: str) -> Result[Ticket]:
        bound = self.bindings.abilities.get(ability)
        try:
            raw = canonical.admit(canonical.without_big_integers(args) if bound and bound.big_integers else args)
        except IntakeError as problem:
            refused = self.scribe.refused(bound.kind if bound else "tool", ability, problem.error, caller, cause)
            self.ledger.append([refused])
            return Err(problem.error)
        now = self.ledger.now()
        facts = self._facts(bound.reads) if bound and bound.reads else {}
        verdict = self._judge(caller, ability, raw, Circumstances(now, self.ledger.session_id, facts))
        entries = self.scribe.judged(verdict, caller, facts, cause)
        if verdict.bound is None or verdict.code:
            entries.append(self.scribe.denied(verdict, caller, ability, cause))
            self.ledger.append(entries, ts=now)
            return Err(fault(verdict.code, verdict.reason))
        return Ok(self._open(verdict, verdict.bound, caller, cause, entries, now))

    def _judge(self, caller: Caller, ability: str, raw: bytes, when: Circumstances) -> Verdict:
        """Drive `judge`: gates that it does not ask itself are run here."""
        judging = judge(self.bindings, caller, ability, canonical.decode(raw), raw, when, self.clock)
        try:
            gate, call = next(judging)
            while True:
                gate, call = judging.send(answer(gate, self.clock, call))
        except StopIteration as done:
            verdict: Verdict = done.value
            return verdict

    def _open(
        self, verdict: Verdict, bound: Bound, caller: Caller, cause: str, entries: list[Entry], now: str
    ) -> Ticket:
        span = self.ledger.span()
        entries.append(self.scribe.intent(bound, verdict, caller, span, cause))
        self.ledger.append(entries, ts=now, durable=bound.durable)
        # gates have seen these arguments: the handler gets a copy of its own, parsed from what the line commits to
        args = verdict.args if len(entries) == 1 else canonical.decode(verdict.raw)
        deadline = self.clock() + bound.timeout
        ticket = Ticket(bound, caller, args, verdict.raw, span, self.ledger.session_id, deadline)
        self.open[span] = ticket
        return ticket

    # --- step 6 -------------------------------------------------------------------------------------------------------

    def perform(self, ticket: Ticket) -> Result[Json]:
        """Invoke the handler of an opened call and close the ticket with what became of it (steps 6 to 9)."""
        try:
            outcome = perform(ticket, self._contexts[ticket.bound.kind], self.clock)
        except Interrupted as stop:
            self.after(ticket, stop.outcome)
            raise stop.cause from None
        return self.after(ticket, outcome)

    async def aperform(self, ticket: Ticket) -> Result[Json]:
        """Do what `perform` does, awaiting an asynchronous handler."""
        try:
            outcome = await aperform(ticket, self._contexts[ticket.bound.kind], self.clock)
        except Interrupted as stop:
            self.after(ticket, stop.outcome)
            raise stop.cause from None
        return self.after(ticket, outcome)

    # --- steps 7 to 9 -------------------------------------------------------------------------------------------------

    def after(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        """Record what became of the call and return what the caller sees; a ticket is closed once."""
        if self.open.pop(ticket.span, None) is None:
            return Err(fault("SESSION_ENDED", f"call {ticket.span} is closed already"))
        try:
            return self._succeed(ticket, outcome) if outcome.end == "result" else self._fail(ticket, outcome)
        except LedgerError as problem:
            why = f"{ticket.bound.id} was begun and its outcome is not recorded: {problem}"
            return Err(fault("OUTCOME_UNKNOWN", why))

    def _succeed(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        try:
            raw = canonical.admit(outcome.value)
        except IntakeError as problem:
            why = fault(problem.error.code, f"{ticket.bound.id} returned what cannot be recorded: {problem}")
            return self._fail(ticket, Outcome("failed", error=why))
        entry = self.scribe.result(ticket, raw, late=outcome.late)
        self.ledger.append([entry])
        ticket.outcome = entry.span
        seen = canonical.decode(raw)
        return self._observe(ticket, seen, raw) if ticket.bound.observers else self._check(ticket, seen)

    def _fail(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        error = outcome.error or fault("TOOL_ERROR", f"{ticket.bound.id} failed without a reason")
        entry = self.scribe.error(ticket, outcome, error)
        self.ledger.append([entry])
        ticket.outcome = entry.span
        return Err(error)

    def _observe(self, ticket: Ticket, result: Json, raw: bytes) -> Result[Json]:
        """Step 8. A hook that fails here may have been the one that redacts: then the caller gets nothing."""
        when = Circumstances(self.ledger.now(), ticket.session, {})
        call = make_call(self.bindings, ticket.caller, ticket.bound, canonical.decode(ticket.raw), ticket.raw, when)
        asked: Asked = []
        failed: Decision | None = None
        for gate in ticket.bound.observers:
            if gate.holds is None or gate.holds(call):
                result, raw, decision = _narrow(gate, self.clock, call, result, raw)
                failed = failed or (decision if decision.outcome == "deny" else None)
                asked.append((gate, decision))
        if asked:
            self.ledger.append([self.scribe.observed(ticket, asked, "deny" if failed else "allow")], ts=when.now)
        if failed is not None:
            return Err(fault("GATE_DENIED", f"the result of {ticket.bound.id} is withheld: {failed.reason}"))
        return self._check(ticket, result)

    def _check(self, ticket: Ticket, result: Json) -> Result[Json]:
        """Step 9. The recorded result stands; what does not fit its schema does not reach the caller."""
        bound = ticket.bound
        if bound.gives.valid(result):
            return Ok(result)
        violations = bound.gives.violations(result)
        who = ticket.caller.principal.id
        self.ledger.append([self.scribe.violation("result", bound, violations, who, ticket.span)])
        first = f"{violations[0].path}: {violations[0].message}" if violations else "does not fit"
        return Err(fault("SCHEMA_VIOLATION", f"the result of {bound.id}: {first}"))

    def close(self) -> None:
        """Record every ticket that is still open as ``unknown``; nothing retries it."""
        for ticket in list(self.open.values()):
            why = fault("OUTCOME_UNKNOWN", f"{ticket.bound.id} was begun and its outcome never came")
            self.after(ticket, Outcome("unknown", error=why))


_NARROWED = Decision("transform", "narrowed the result")


def _narrow(gate: BoundGate, clock: Clock, call: Call, result: Json, raw: bytes) -> tuple[Json, bytes, Decision]:
    """Ask one observer; return what it leaves of *result*, its canonical bytes, and how it did."""
    decision = answer(gate, clock, call, result)
    if decision.outcome == "deny":
        return result, raw, decision
    seen = decision.args["result"] if decision.args is not None else None
    try:
        left = canonical.admit(seen)
    except IntakeError as problem:
        return result, raw, refusal(f"returned what cannot be recorded: {problem}")
    return seen, left, ALLOW if left == raw else _NARROWED
