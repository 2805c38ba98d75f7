"""Recorded outcomes in the place of handlers: what a forked session is served, until its past ends or is left.

Every call has come through the door by then: it was scoped, checked, judged under the present charter, and its intent
is recorded. Here it is only decided what its outcome is: the recorded one, a refusal, or what the handler does.
"""

from collections.abc import Callable
from itertools import islice
from threading import Lock
from typing import Any, Final, Literal, TypeAlias

from deedbook.call.handlers import Outcome, Ticket
from deedbook.contract import Event, Object
from deedbook.format.canonical import decode
from deedbook.format.errors import DomainError, fault
from deedbook.format.sealed import Sealer

from .differences import Difference, differences
from .parent import Gone
from .past import Made, Past, given_as

State: TypeAlias = Literal["serving", "ended", "diverged", "real"]
"""``serving`` the past; ``ended``: it is over and nothing more is done; ``diverged``: it was left, and nothing more is
done; ``real``: handlers run."""
MOST: Final = 20
"""Differences that are told of one call."""
_DURABLE: Final = frozenset({"write", "irreversible"})


class Recall:
    """What a forked session is served: asked in the place of each handler.

    *goes_on*: after the past handlers run; else nothing more is done. *leaves*: so it is also where a call differs from
    the past, and `note` is told. *served* and *refused* count. *sealer* takes out of arguments what no record holds.
    """

    def __init__(self, past: Past, sealer: Sealer, *, goes_on: bool, leaves: bool) -> None:
        self.past, self.goes_on = past, goes_on
        self.state: State = "serving"
        self.served = self.refused = 0
        self.note: Callable[[Object], object] = _unheard
        self.why: DomainError | None = None
        self.found: list[Difference] = []
        self._sealer, self._leaves = sealer, leaves
        self._turn = Lock()

    def __call__(self, ticket: Ticket) -> Outcome | None:
        """Return the outcome of an opened call; ``None``: its handler runs."""
        with self._turn:
            if self.state == "serving" and not self.past.left:
                self.end()
            if self.state == "serving":
                return self._serve(ticket)
            return None if self.state == "real" else self._refuse(ticket)

    def end(self) -> None:
        """Let the past be over: what comes now was never recorded."""
        if self.state == "serving":
            self.state = "real" if self.goes_on else "ended"

    def resume(self) -> None:
        """Let handlers run from now on, unless the past was left."""
        if self.state == "ended":
            self.state, self.goes_on = "real", True

    def leave(self, why: DomainError, found: list[Difference]) -> None:
        """Leave the past, because of *why*."""
        self.why, self.found = why, found
        self.state = "real" if self._leaves else "diverged"

    # --- one call -----------------------------------------------------------------------------------------------------

    def _serve(self, ticket: Ticket) -> Outcome | None:
        bound = ticket.bound
        made = self.past.take(bound.kind, bound.id, self._sealer.scrub(ticket.raw))
        if made is None:
            return self._missed(ticket)
        if bound.kind == "flow":
            return None
        if made.ended is None:
            return self._lost(ticket, made)
        try:
            outcome = self._recorded(made, made.ended)
        except Gone as problem:
            return self._incomplete(made, f"its outcome is not there any more ({problem})")
        self.past.pass_over(made)
        self.served += 1
        return outcome

    def _recorded(self, made: Made, ended: Event) -> Outcome:
        parent = self.past.parent
        said = parent.opened(dict(ended.payload))
        told = {"session": parent.session, "seq": ended.seq, "hash": parent.hashes[ended.seq]}
        note = (("call.served", told),)
        if "outcome" in said:
            error = fault(str(said["code"]), str(said["message"]), retryable=said["retryable"] is True)
            return Outcome(said["outcome"], error=error, told=note)
        member = "response" if made.kind == "model" else "result"
        if member not in said:
            raise Gone("its payload was taken out")
        return Outcome("result", said[member], late=said.get("late") is True, told=note)

    def _lost(self, ticket: Ticket, made: Made) -> Outcome | None:
        """Decide about a call that has no recorded outcome: what may have had an effect is not done again."""
        if ticket.bound.effects not in _DURABLE:
            if not self.past.left:
                self.end()
            return None if self.goes_on else self._refuse(ticket)
        self.past.pass_over(made)
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

    def _missed(self, ticket: Ticket) -> Outcome | None:
        gone = next((made for made in self.past.due() if made.gone and made.name == ticket.bound.id), None)
        if gone is not None:
            return self._incomplete(gone, f"its arguments are not there any more ({gone.gone})")
        return self._diverged(ticket)

    def _incomplete(self, made: Made, gone: str) -> Outcome | None:
        why = f"event {made.intent.seq} of session {self.past.parent.session} cannot be served: {gone}"
        return self._left(made, fault("FORK_INCOMPLETE", why), [])

    def _diverged(self, ticket: Ticket) -> Outcome | None:
        """Say how a call differs from the nearest that is due."""
        bound, parent = ticket.bound, self.past.parent.session
        due = list(self.past.due())
        alike = [made for made in due if (made.kind, made.name) == (bound.kind, bound.id)]
        if not alike:
            first = due[0]
            kind = f"{first.intent.type} of {first.name or '[sealed]'}"
            why = f"{bound.id} was called where event {first.intent.seq} of session {parent} is a {kind}"
            return self._left(first, fault("FORK_DIVERGED", why + self._was_denied(ticket)), [])
        now = self._as_recorded(ticket)
        each = [(made, list(islice(differences(made.stored, now), MOST + 1))) for made in alike]
        made, found = min(each, key=lambda pair: len(pair[1]))
        said = "; ".join(map(str, found[:3])) or "sealed values differ"
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        why = f"{bound.id} was called otherwise than by event {made.intent.seq} of session {parent}: {said}{more}"
        return self._left(made, fault("FORK_DIVERGED", why), found)

    def _was_denied(self, ticket: Ticket) -> str:
        for event in self.past.denied:
            said = event.payload
            if said.get("name") == ticket.bound.id:
                return f" (event {event.seq} denied a call of it: {said.get('code')})"
        return ""

    def _as_recorded(self, ticket: Ticket) -> Any:
        """Return the arguments as the ledger holds them now, with what has to be sealed sealed."""
        words = ticket.bound.event_names
        payload = b"%b%b%b" % (words.intent_head, ticket.raw, words.intent_tail)
        return decode(self._sealer(words.intent, payload)[0]).get(given_as(words.intent))

    def _left(self, made: Made, why: DomainError, found: list[Difference]) -> Outcome | None:
        self.leave(why, found)
        if self.state == "real":
            self.note(self.told(made))
            return None
        return Outcome("failed", error=why, told=(("call.diverged", self.told(made)),))

    def told(self, made: Made) -> Object:
        """Return what a ledger says of a call that differs from *made*."""
        assert self.why
        parent, seq = self.past.parent, made.intent.seq
        return {
            "session": parent.session,
            "seq": seq,
            "hash": parent.hashes[seq],
            "code": self.why.code,
            "why": self.why.message[:2000],
            "differences": [_spelled(each) for each in self.found[:MOST]],
        }


def _unheard(_: Object) -> None:
    """Nobody writes it down."""


def _spelled(found: Difference) -> Object:
    told = {"path": found.path, "recorded": found.before, "now": found.now}
    return {name: value for name, value in told.items() if value is not None}
