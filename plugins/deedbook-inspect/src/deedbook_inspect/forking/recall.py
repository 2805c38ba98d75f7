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
from deedbook.call.handlers import Outcome, Ticket
from deedbook.continuation.differences import ValueDifference, find_differences
from deedbook.continuation.parent import ValueMissing
from deedbook.continuation.requests import args_member, may_have_effects
from deedbook.contract import Event, Object
from deedbook.format.canonical import decode
from deedbook.format.errors import DomainError, Result, fault
from deedbook.format.sealed import Sealer
from deedbook.policy.bindings import Bindings
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
    what no record holds.
    """

    def __init__(self, past: RecordedPast, sealer: Sealer, *, goes_on: bool, leaves: bool) -> None:
        self.past, self.goes_on = past, goes_on
        self.state: State = "serving"
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
            return None if self.state == "real" else self._refuse(ticket)

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
            return self._report_missing(ticket)
        if bound.kind == "flow":
            return None
        if made.outcome is None:
            return self._settle_lost(ticket, made, bindings)
        try:
            outcome = self._recorded_outcome(made, made.outcome)
        except ValueMissing as problem:
            return self._incomplete(made, f"its outcome is not there any more ({problem})")
        self.past.skip(made)
        self.served += 1
        return outcome

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
            return None if self.goes_on else self._refuse(ticket)
        begun = f"event {made.intent.seq} of session {self.past.parent.session}"
        why = f"{ticket.bound.id} was begun by {begun}, and no record says what came of it; it is not done again"
        return Outcome("unknown", error=fault("OUTCOME_UNKNOWN", why))

    def _refuse(self, ticket: Ticket) -> Outcome:
        self.refused += 1
        if self.state == "diverged":
            assert self.why
            why = f"{ticket.bound.id} was not run: the fork has left its past before; {self.why.message}"
            return Outcome("cancelled", error=fault(self.why.code, why))
        why = f"{ticket.bound.id} was not run: the past ends at event {self.past.at}; --run goes on from there"
        return Outcome("cancelled", error=fault("FORK_ENDED", why))

    # --- leaving the past ---------------------------------------------------------------------------------------------

    def _report_missing(self, ticket: Ticket) -> Outcome | None:
        gone = next((made for made in self.past.due() if made.missing and made.name == ticket.bound.id), None)
        if gone is not None:
            return self._incomplete(gone, f"its arguments are not there any more ({gone.missing})")
        return self._report_divergence(ticket)

    def _incomplete(self, made: RecordedCall, gone: str) -> Outcome | None:
        why = f"event {made.intent.seq} of session {self.past.parent.session} cannot be served: {gone}"
        return self._leave_at(made, fault("FORK_INCOMPLETE", why), [])

    def _report_divergence(self, ticket: Ticket) -> Outcome | None:
        """Report how a call differs from the nearest due one."""
        bound, parent = ticket.bound, self.past.parent.session
        due = list(self.past.due())
        alike = [made for made in due if (made.kind, made.name) == (bound.kind, bound.id)]
        if not alike:
            first = due[0]
            kind = f"{first.intent.type} of {first.name or '[sealed]'}"
            why = f"{bound.id} was called where event {first.intent.seq} of session {parent} is a {kind}"
            return self._leave_at(first, fault("FORK_DIVERGED", why + self._was_denied(ticket)), [])
        now = self._sealed_args(ticket)
        each = [(made, list(islice(find_differences(made.stored_args, now), MOST + 1))) for made in alike]
        made, found = min(each, key=lambda pair: len(pair[1]))
        said = "; ".join(map(str, found[:3])) or "sealed values differ"
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        why = f"{bound.id} was called otherwise than by event {made.intent.seq} of session {parent}: {said}{more}"
        return self._leave_at(made, fault("FORK_DIVERGED", why), found)

    def _was_denied(self, ticket: Ticket) -> str:
        for event in self.past.denied:
            said = event.payload
            if said.get("name") == ticket.bound.id:
                return f" (event {event.seq} denied a call of it: {said.get('code')})"
        return ""

    def _sealed_args(self, ticket: Ticket) -> Any:
        """Return the arguments as the ledger holds them now, with sealed values sealed."""
        words = ticket.bound.event_names
        payload = b"%b%b%b" % (words.intent_head, ticket.raw, words.intent_tail)
        return decode(self._sealer(words.intent, payload)[0]).get(args_member(words.intent))

    def _leave_at(self, made: RecordedCall, why: DomainError, found: list[ValueDifference]) -> Outcome | None:
        self.leave(why, found)
        if self.state == "real":
            self.note(self.describe_divergence(made))
            return None
        return Outcome("failed", error=why, events=(("call.diverged", self.describe_divergence(made)),))

    def describe_divergence(self, made: RecordedCall) -> Object:
        """Return the payload about a call that differs from *made*."""
        assert self.why
        parent, seq = self.past.parent, made.intent.seq
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
        outcome = self._recall.outcome_of(ticket, self._door.bindings)
        return super().perform(ticket) if outcome is None else self._door.after(ticket, outcome)

    async def aperform(self, ticket: Ticket) -> Result[Any]:
        """Act like `perform`, from a coroutine."""
        outcome = self._recall.outcome_of(ticket, self._door.bindings)
        return await super().aperform(ticket) if outcome is None else self._door.after(ticket, outcome)

    def under(self, span: str) -> RunJournal:
        """Return the journal of a branch."""
        return self._recall.journal(self._door, self._record, span)


def _discard(_: Object) -> None:
    """Ignore the event."""


def _as_json(found: ValueDifference) -> Object:
    told = {"path": found.path, "recorded": found.before, "now": found.now}
    return {name: value for name, value in told.items() if value is not None}
