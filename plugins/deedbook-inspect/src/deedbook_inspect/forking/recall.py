"""Serve recorded outcomes instead of running handlers, until a forked session's past ends or differs.

The requests of a fork pass a journal, as those of every run do. `ForkJournal` lets the door judge each call under the
current charter and record its intent. Then `Recall` decides the outcome: the recorded one, a refusal, or that of the
handler.
"""

from collections.abc import Callable
from itertools import islice
from threading import Lock
from typing import Any, Final, Literal, TypeAlias

from deedbook.call.door import Door
from deedbook.call.handlers import Outcome, ServedCall, Ticket
from deedbook.continuation.differences import ValueDifference, find_differences
from deedbook.continuation.parent import ValueMissing
from deedbook.continuation.requests import args_member, may_have_effects
from deedbook.contract import Event, Failed, Json, Object
from deedbook.format.canonical import decode
from deedbook.format.errors import DomainError, Result, fault
from deedbook.format.sealed import Sealer
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import BoundAbility
from deedbook.sessions.run_journal import RunJournal, Write

from .past import RecordedCall, RecordedPast

State: TypeAlias = Literal["serving", "ended", "diverged", "real"]
"""What becomes of calls: ``serving`` gives them the past, ``real`` runs their handlers, and in the other two states no
handler runs: the past is over (``ended``), or a call differed from it (``diverged``)."""
MOST: Final = 20
"""How many differences of one call are reported."""


class Recall:
    """Serves the past to a forked session; asked before each handler.

    *goes_on*: after the past, handlers run; otherwise nothing more is done. *leaves*: handlers also run once a call
    differs from the past, and `note` is called. *served* and *refused* count calls. *sealer* removes from arguments
    what no record holds. *spans* names the parent's run or branch for each one that is repeated.
    """

    def __init__(self, past: RecordedPast, sealer: Sealer, *, goes_on: bool, leaves: bool) -> None:
        self.past, self.goes_on = past, goes_on
        self.state: State = "serving"
        self.spans: dict[str, str] = {}
        self.served = self.refused = 0
        self.note: Callable[[Object], object] = _discard
        self.why: DomainError | None = None
        self.found: list[ValueDifference] = []
        self._sealer, self._leaves = sealer, leaves
        self._turn = Lock()

    def journal(self, door: Door, record: Write, span: str) -> RunJournal:
        """Return the journal of what stands under *span*."""
        return ForkJournal(door, record, span, self)

    def outcome_of(self, ticket: Ticket, bindings: Bindings) -> Outcome | None:
        """Return the outcome of an opened call, or ``None`` if its handler must run."""
        with self._turn:
            if self.state == "serving" and not self.past.remaining:
                self.end()
            if self.state == "serving":
                return self._serve(ticket, bindings)
            return None if self.state == "real" else self._refuse(ticket.bound)

    def serve_approved(self, bound: BoundAbility, raw: bytes) -> ServedCall | DomainError | None:
        """Decide about a call that a person must decide today; ``None`` if the fork may ask one.

        While the past lasts, nobody is asked: the call gets what it got then, if a person decided about it.
        """
        with self._turn:
            if self.state == "serving":
                return self._serve_approved(bound, raw)
            return None if self.state == "real" else self._refuse(bound).error

    def value(self, span: str, kind: str, make: Callable[[], Json]) -> Json:
        """Return the next recorded value of a run or branch (*span*, of the fork); make one if none is left."""
        with self._turn:
            event = None if self.why else self.past.take_below(self.spans.get(span, ""), "run.value")
            recorded = None if event is None else self._open_value(event, kind)
        if recorded is None:
            return make()
        value: Json = recorded["value"]
        return value

    def begin_branch(self, above: str, span: str) -> None:
        """Note that the fork's branch *span* repeats the next recorded branch of the run or branch *above*."""
        with self._turn:
            event = None if self.why else self.past.take_below(self.spans.get(above, ""), "run.branch")
            if event is not None:
                self.spans[span] = event.span

    def end(self) -> None:
        """End the past: further calls were never recorded."""
        if self.state == "serving":
            self.state = "real" if self.goes_on else "ended"

    def resume(self) -> None:
        """Let handlers run from now on, unless a call differed from the past."""
        if self.state == "ended":
            self.state, self.goes_on = "real", True

    def leave(self, why: DomainError, found: list[ValueDifference]) -> None:
        """Leave the past, because of *why*."""
        self.why, self.found = why, found
        self.state = "real" if self._leaves else "diverged"

    # --- one call -----------------------------------------------------------------------------------------------------

    def _serve(self, ticket: Ticket, bindings: Bindings) -> Outcome | None:
        bound = ticket.bound
        made = self.past.take(bound.kind, bound.id, self._sealer.scrub(ticket.raw))
        if made is None:
            return self._report_missing(bound, ticket.raw)
        if bound.kind == "flow":
            self.spans[ticket.span] = made.intent.span
            return None
        if made.outcome is None:
            return self._settle_lost(ticket, made, bindings)
        return self._serve_outcome(made, made.outcome)

    def _serve_outcome(self, made: RecordedCall, ended: Event) -> Outcome | None:
        try:
            outcome = self._recorded_outcome(made, ended)
        except ValueMissing as problem:
            return self._incomplete(made, f"its outcome is not there any more ({problem})")
        self.past.skip(made)
        self.served += 1
        return outcome

    def _serve_approved(self, bound: BoundAbility, given: bytes) -> ServedCall | DomainError | None:
        raw = self._sealer.scrub(given)
        made = self.past.find(bound.kind, bound.id, raw)
        if made is None:
            denial = self.past.take_denial(bound.id, raw)
            if denial is not None:
                return fault(str(denial.payload.get("code")), str(denial.payload.get("reason")))
            if not self.past.remaining:
                self.end()
                return None if self.state == "real" else self._refuse(bound).error
            return self._note_leaving(self._report_missing(bound, given))
        if made.approval is None:
            why = (
                f"a person must decide about {bound.id} today, and nobody did about event {made.intent.seq} of "
                f"session {self.past.parent.session}"
            )
            return self._note_leaving(self._leave_at(made, fault("FORK_DIVERGED", why), []))
        parent, approval = self.past.parent, made.approval
        record = {"session": parent.session, "seq": approval.seq, "hash": parent.hashes[approval.seq]}
        if bound.kind == "flow":
            return ServedCall(record, None)
        self.past.remaining.remove(made)
        if made.outcome is None:
            self.past.skip(made)
            return ServedCall(record, self._lost(bound, made))
        outcome = self._serve_outcome(made, made.outcome)
        if outcome is None or any(event == "call.diverged" for event, _ in outcome.events):
            return self._note_leaving(outcome)
        return ServedCall(record, outcome)

    def _note_leaving(self, outcome: Outcome | None) -> DomainError | None:
        """Record that the past was left at a call that is denied, and return why; ``None`` if handlers run now."""
        if outcome is None:
            return None
        for _, payload in outcome.events:
            self.note(payload)
        return outcome.error

    def _open_value(self, event: Event, kind: str) -> Object | None:
        """Return the recorded value *event*, which must be of this *kind*; ``None`` if the past is left there."""
        place = f"event {event.seq} of session {self.past.parent.session}"
        try:
            recorded: Object = self.past.parent.open_value(dict(event.payload))
            code, why = "FORK_DIVERGED", f"{place} is a value of the kind {recorded.get('kind')!r}, not {kind!r}"
        except ValueMissing as problem:
            recorded, code, why = {}, "FORK_INCOMPLETE", f"{place} cannot be served: {problem}"
        if recorded.get("kind") == kind:
            return recorded
        self.leave(fault(code, why), [])
        self.note(self._describe(event))
        if self.state == "real":
            return None
        raise Failed(code, why)

    def _recorded_outcome(self, made: RecordedCall, ended: Event) -> Outcome:
        parent = self.past.parent
        said = parent.open_value(dict(ended.payload))
        told = {"session": parent.session, "seq": ended.seq, "hash": parent.hashes[ended.seq]}
        note = (("call.served", told),)
        if "outcome" in said:
            error = fault(str(said["code"]), str(said["message"]), retryable=said["retryable"] is True)
            return Outcome(said["outcome"], error=error, events=note)
        member = "response" if made.kind == "model" else "result"
        if member not in said:
            raise ValueMissing("its payload was taken out")
        return Outcome("result", said[member], late=said.get("late") is True, events=note)

    def _settle_lost(self, ticket: Ticket, made: RecordedCall, bindings: Bindings) -> Outcome | None:
        """Decide about a call without a recorded outcome: one that may have had an effect is not repeated."""
        names = ticket.bound.id, *(each.name for each in self.past.calls_inside(made))
        self.past.skip(made)
        if not may_have_effects(bindings, names):
            if not self.past.remaining:
                self.end()
            return None if self.goes_on else self._refuse(ticket.bound)
        return self._lost(ticket.bound, made)

    def _lost(self, bound: BoundAbility, made: RecordedCall) -> Outcome:
        begun = f"event {made.intent.seq} of session {self.past.parent.session}"
        why = f"{bound.id} was begun by {begun}, and no record says what came of it; it is not done again"
        return Outcome("unknown", error=fault("OUTCOME_UNKNOWN", why))

    def _refuse(self, bound: BoundAbility) -> Outcome:
        self.refused += 1
        if self.state == "diverged":
            assert self.why
            why = f"{bound.id} was not run: the fork has left its past before; {self.why.message}"
            return Outcome("cancelled", error=fault(self.why.code, why))
        why = f"{bound.id} was not run: the past ends at event {self.past.at}; --run goes on from there"
        return Outcome("cancelled", error=fault("FORK_ENDED", why))

    # --- leaving the past ---------------------------------------------------------------------------------------------

    def _report_missing(self, bound: BoundAbility, raw: bytes) -> Outcome | None:
        gone = next((made for made in self.past.due() if made.missing and made.name == bound.id), None)
        if gone is not None:
            return self._incomplete(gone, f"its arguments are not there any more ({gone.missing})")
        return self._report_divergence(bound, raw)

    def _incomplete(self, made: RecordedCall, gone: str) -> Outcome | None:
        why = f"event {made.intent.seq} of session {self.past.parent.session} cannot be served: {gone}"
        return self._leave_at(made, fault("FORK_INCOMPLETE", why), [])

    def _report_divergence(self, bound: BoundAbility, raw: bytes) -> Outcome | None:
        """Report how a call differs from the nearest due one."""
        parent = self.past.parent.session
        due = list(self.past.due())
        alike = [made for made in due if (made.kind, made.name) == (bound.kind, bound.id)]
        if not alike:
            first = due[0]
            kind = f"{first.intent.type} of {first.name or '[sealed]'}"
            why = f"{bound.id} was called where event {first.intent.seq} of session {parent} is a {kind}"
            return self._leave_at(first, fault("FORK_DIVERGED", why + self._was_denied(bound)), [])
        now = self._sealed_args(bound, raw)
        each = [(made, list(islice(find_differences(made.stored_args, now), MOST + 1))) for made in alike]
        made, found = min(each, key=lambda pair: len(pair[1]))
        said = "; ".join(map(str, found[:3])) or "sealed values differ"
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        why = f"{bound.id} was called otherwise than by event {made.intent.seq} of session {parent}: {said}{more}"
        return self._leave_at(made, fault("FORK_DIVERGED", why), found)

    def _was_denied(self, bound: BoundAbility) -> str:
        for event in self.past.denied:
            said = event.payload
            if said.get("name") == bound.id:
                return f" (event {event.seq} denied a call of it: {said.get('code')})"
        return ""

    def _sealed_args(self, bound: BoundAbility, raw: bytes) -> Any:
        """Return the arguments as the ledger holds them now, with sealed values sealed."""
        words = bound.event_names
        payload = b"%b%b%b" % (words.intent_head, raw, words.intent_tail)
        return decode(self._sealer(words.intent, payload)[0]).get(args_member(words.intent))

    def _leave_at(self, made: RecordedCall, why: DomainError, found: list[ValueDifference]) -> Outcome | None:
        self.leave(why, found)
        if self.state == "real":
            self.note(self.describe_divergence(made))
            return None
        return Outcome("failed", error=why, events=(("call.diverged", self.describe_divergence(made)),))

    def describe_divergence(self, made: RecordedCall) -> Object:
        """Return the payload about a call that differs from *made*."""
        return self._describe(made.intent)

    def _describe(self, event: Event) -> Object:
        assert self.why
        parent, seq = self.past.parent, event.seq
        return {
            "session": parent.session,
            "seq": seq,
            "hash": parent.hashes[seq],
            "code": self.why.code,
            "why": self.why.message[:2000],
            "differences": [_as_json(each) for each in self.found[:MOST]],
        }


class ForkJournal(RunJournal):
    """The journal of a fork: calls that the door has opened get the outcomes of *recall*, or run their handlers."""

    def __init__(self, door: Door, record: Write, span: str, recall: Recall) -> None:
        super().__init__(door, record, span)
        self._recall = recall

    def perform(self, ticket: Ticket) -> Result[Any]:
        """Close the call with its recorded outcome, or let the door perform it."""
        outcome = ticket.served or self._recall.outcome_of(ticket, self._door.bindings)
        return super().perform(ticket) if outcome is None else self._door.after(ticket, outcome)

    async def aperform(self, ticket: Ticket) -> Result[Any]:
        """Act like `perform`, from a coroutine."""
        outcome = ticket.served or self._recall.outcome_of(ticket, self._door.bindings)
        return await super().aperform(ticket) if outcome is None else self._door.after(ticket, outcome)

    def value(self, kind: str, make: Callable[[], Json]) -> Json:
        """Record the recorded value again, or make one."""
        return super().value(kind, lambda: self._recall.value(self.span, kind, make))

    def under(self, span: str) -> RunJournal:
        """Return the journal of a branch."""
        self._recall.begin_branch(self.span, span)
        return self._recall.journal(self._door, self._record, span)


def _discard(_: Object) -> None:
    """Ignore the event."""


def _as_json(found: ValueDifference) -> Object:
    told = {"path": found.path, "recorded": found.before, "now": found.now}
    return {name: value for name, value in told.items() if value is not None}
