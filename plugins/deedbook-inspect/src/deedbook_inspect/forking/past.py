"""The calls of a session up to an event, in their order, each with its outcome: what can be served again.

A call is taken when the same one is made: kind, name and final arguments. It may be taken before a call that began
earlier only if the two overlapped. With a served call, all calls of its handler are also past; a flow is never served,
since it acts only through calls.
"""

from collections.abc import Iterator, Mapping
from math import inf
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.continuation.parent import ParentSession, ValueMissing
from deedbook.continuation.requests import args_member
from deedbook.contract import Event
from deedbook.format.canonical import digest, encode_payload
from deedbook.format.errors import LedgerError, fault
from deedbook.format.families import OUTCOMES
from deedbook.format.folds import NAMED_BY

_KINDS: Final[Mapping[str, str]] = MappingProxyType({"llm": "model"})
_ENDS: Final = frozenset(outcome for outcomes in OUTCOMES.values() for outcome in outcomes)
_UNANSWERED: Final = ("NEEDS_HUMAN", "APPROVAL_", "CANCELLED")
"""How the codes begin of calls that were denied because no person approved them."""
_APPROVED: Final = ("approval.granted", "approval.served")


@attrs.define(eq=False)
class RecordedCall:
    """A recorded call: its *intent*, its *outcome* if there is one, and the call *within* which it was made.

    *args* are the final arguments, opened; *missing* is the reason if they are not available. *approval* is the event
    that allowed the call after a person had approved it.
    """

    intent: Event
    kind: str
    name: str
    args: Any = None
    key: str = ""
    missing: str = ""
    outcome: Event | None = None
    within: "RecordedCall | None" = None
    approval: Event | None = None

    @property
    def stored_args(self) -> Any:
        """The final arguments as the ledger has them."""
        return self.intent.payload.get(args_member(self.intent.type))

    @property
    def until(self) -> float:
        """The number of the event until which it was open."""
        return inf if self.outcome is None else self.outcome.seq

    def is_within(self, other: "RecordedCall") -> bool:
        """Return whether *other* encloses it, at any depth."""
        above = self.within
        while above is not None and above is not other:
            above = above.within
        return above is other


class RecordedPast:
    """The calls of *parent* whose intent is among its events 0 to *at*, as far as they were not taken yet."""

    def __init__(self, parent: ParentSession, at: int) -> None:
        self.parent, self.at = parent, at
        self.remaining = _without_repeated(list(_recorded_calls(parent, at)))
        self.denied = [event for event in parent.events[: at + 1] if event.type == "tool.denied"]
        self._below: dict[str, list[Event]] = {}
        for event in parent.events[: at + 1]:
            if event.type in ("run.value", "run.branch"):
                self._below.setdefault(event.parent or "", []).append(event)

    def find(self, kind: str, name: str, raw: bytes) -> "RecordedCall | None":
        """Return the recorded call that is equal, by its final arguments (*raw*); ``None`` if none is due."""
        wanted = key_of(kind, name, raw)
        return next((made for made in self.due() if made.key == wanted), None)

    def take(self, kind: str, name: str, raw: bytes) -> "RecordedCall | None":
        """Take the call that `find` returns."""
        found = self.find(kind, name, raw)
        if found is not None:
            self.remaining.remove(found)
        return found

    def take_denial(self, name: str, raw: bytes) -> Event | None:
        """Take the first call of *name* with the arguments *raw* that no person approved; ``None`` without one."""
        for event in self.denied:
            unanswered = str(event.payload.get("code")).startswith(_UNANSWERED)
            if unanswered and event.payload.get("name") == name and "args" in event.payload:
                try:
                    same = encode_payload(self.parent.open_value(event.payload["args"])) == raw
                except ValueMissing:
                    same = False
                if same:
                    self.denied.remove(event)
                    return event
        return None

    def take_below(self, span: str, kind: str) -> Event | None:
        """Take the next recorded value or branch (an event type) of the run or branch *span* of the parent."""
        found = self._below.get(span, [])
        event = next((event for event in found if event.type == kind), None)
        if event is not None:
            found.remove(event)
        return event

    def due(self) -> Iterator[RecordedCall]:
        """Yield the calls that may come next: the first remaining one, and those that began before it had ended.

        Nested calls come after their enclosing call.
        """
        until = inf
        for made in self.remaining:
            if made.intent.seq > until:
                return
            if made.within is None or made.within not in self.remaining:
                yield made
            until = min(until, made.until)

    def calls_inside(self, made: RecordedCall) -> Iterator[RecordedCall]:
        """Yield the remaining calls inside *made*."""
        return (each for each in self.remaining if each.is_within(made))

    def skip(self, made: RecordedCall) -> None:
        """Treat all calls inside *made* as past."""
        self.remaining = [each for each in self.remaining if not each.is_within(made)]


def key_of(kind: str, name: str, raw: bytes) -> str:
    """Return the key of equal calls: the digest of kind, name and final arguments."""
    return digest(b"%b\n%b\n%b" % (kind.encode(), name.encode(), raw))


def _recorded_calls(parent: ParentSession, at: int) -> Iterator[RecordedCall]:
    """Yield every call in the order of the intents, with its outcome from anywhere in the ledger."""
    around: dict[str, RecordedCall | None] = {}
    found: list[RecordedCall] = []
    approvals: dict[str, Event] = {}
    for event in parent.events:
        above = around.get(event.parent or "")
        around[event.span] = above
        if event.type in OUTCOMES and event.seq <= at:
            family = event.type.partition(".")[0]
            name = event.payload.get(NAMED_BY.get(family, "tool_name"))
            made = RecordedCall(event, _KINDS.get(family, family), name if isinstance(name, str) else "", within=above)
            made.approval = approvals.get(event.parent or "")
            _open(parent, made)
            around[event.span] = made
            found.append(made)
        elif event.type in _APPROVED:
            approvals[event.span] = event
        elif event.type in _ENDS and above is not None and above.intent.span == event.parent:
            above.outcome = event
            around[event.span] = above.within  # calls that an answer requests are not nested in the question
    yield from found


def _without_repeated(calls: list[RecordedCall]) -> list[RecordedCall]:
    """Leave out lost calls that were made again when the session was resumed: its flow got the later outcome."""
    later: set[tuple[str | None, str]] = set()
    kept = []
    for made in reversed(calls):
        place = made.intent.parent, made.key
        if not (_is_lost(made) and place in later):
            kept.append(made)
        later.add(place)
    return kept[::-1]


def _is_lost(made: RecordedCall) -> bool:
    ended = made.outcome
    return ended is not None and ended.actor == "system" and ended.payload.get("outcome") == "unknown"


def refuse_settled(parent: ParentSession, at: int) -> None:
    """Raise `LedgerError` (``FORK_REFUSED``) if a person gave the result of a call up to event *at*."""
    settled = next((event for event in parent.events[: at + 1] if event.type == "call.settled"), None)
    if settled is not None:
        why = f"a person gave the result of a call at event {settled.seq}, and a fork serves outcomes only"
        raise LedgerError(fault("FORK_REFUSED", f"{why}; fork from an event before it", place=str(parent.place)))


def _open(parent: ParentSession, made: RecordedCall) -> None:
    try:
        made.args = parent.open_value(made.stored_args)
        made.key = key_of(made.kind, made.name, encode_payload(made.args))
    except ValueMissing as problem:
        made.missing = str(problem)
    if made.args is None:
        made.missing = made.missing or "its payload was taken out"
