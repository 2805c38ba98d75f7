"""The requests of a session's runs, read from its ledger: what each flow asked for, in order, and what it got.

The requests stand in branches. A branch is named by a span: that of a prompt's ``user.message``, of a ``flow.call`` or
of a ``run.branch``. What happened inside the call of a tool or a model belongs to that call.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Event, Object
from deedbook.contract.lifecycle import EVENTS
from deedbook.format.families import OUTCOMES
from deedbook.format.folds import NAMED_BY
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import DURABLE
from deedbook.policy.subjects import is_about_subject

_GIVEN: Final[Mapping[str, str]] = MappingProxyType({"llm": "request"})
_ENDS: Final = {end: intent for intent, ends in OUTCOMES.items() for end in ends}
_FIRED: Final = frozenset(name for name, life in EVENTS.items() if life.subject) | {"SkillStart", "Stop"}
"""The life-cycle events that a flow or a prompt asks about."""
_AROUND: Final = frozenset({"approval.granted", "approval.refused", "approval.expired", "approval.withdrawn"})
"""Events around a call, which belong to the request that follows."""
_SYSTEM: Final = frozenset({"context.needs_human", "context.resumed", "call.settled"})
"""Events about a run that a resumed flow need not ask for: a run that waited is told so again if it still does."""


@attrs.define(eq=False)
class Request:
    """One request: its *kind* (``call``, ``event``, ``hook``, ``decision`` or ``approval``), its *name*, and its event.

    A call has its *outcome*, the *seen* answer of ``PostToolUse`` hooks, the *violation* of its result, and the result
    that a person *settled* later; *nested* are the abilities that its handler called. *given* are the arguments before
    rewriters changed them, if these did. *asked* is the request for approval that came before it; for the kind
    ``approval``, nothing followed.
    """

    kind: str
    name: str
    event: Event
    given: Any = None
    outcome: Event | None = None
    seen: Event | None = None
    violation: Event | None = None
    settled: Event | None = None
    asked: Event | None = None
    nested: list[str] = attrs.field(factory=list)

    @property
    def is_denied(self) -> bool:
        """Whether the call was refused."""
        return self.event.type == "tool.denied"

    @property
    def is_lost(self) -> bool:
        """Whether the process died, or was interrupted, while the call ran."""
        if self.kind != "call" or self.is_denied:
            return False
        ended = self.outcome
        return ended is None or (ended.actor == "system" and ended.payload.get("outcome") == "unknown")

    def may_have_effects(self, bindings: Bindings) -> bool:
        """Return whether the call, or one that its handler made, must not happen twice."""
        return may_have_effects(bindings, [self.name, *self.nested])

    @property
    def is_flow(self) -> bool:
        """Whether the request is the call of a flow."""
        return self.event.type == "flow.call"

    @property
    def is_open_run(self) -> bool:
        """Whether the request is the call of a flow that has not ended."""
        return self.is_flow and self.is_lost

    @property
    def is_cancelled(self) -> bool:
        """Whether the call was cancelled."""
        return self.outcome is not None and self.outcome.payload.get("outcome") == "cancelled"

    def is_unknown(self, *, last: bool) -> bool:
        """Return whether the outcome of the call is unknown: it was lost, or cancelled as the *last* of its branch."""
        return self.settled is None and (self.is_lost or (self.is_cancelled and last))


@attrs.define(eq=False)
class _Position:
    """Where an event stands: its *branch*, and the *call* inside which it was recorded."""

    branch: str = ""
    call: Request | None = None


@attrs.define(eq=False)
class _NextRequest:
    """What is recorded already of the next request of a branch."""

    given: Any = None
    asked: Event | None = None


class RunRequests:
    """The requests of all runs of a session, by branch; *calls* has every call by the span of its intent."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.branches: dict[str, list[Request]] = {}
        self.calls: dict[str, Request] = {}
        self._positions: dict[str, _Position] = {}
        self._next: dict[str, _NextRequest] = {}
        for event in events:
            self._take(event)
        for branch, ahead in self._next.items():
            if ahead.asked is not None:
                name = str(ahead.asked.payload.get("name"))
                self._add(branch, Request("approval", name, ahead.asked, ahead.given, asked=ahead.asked))

    def _take(self, event: Event) -> None:
        above = self._positions.get(event.parent or "", _Position())
        self._positions[event.span] = above
        if event.type == "user.message":
            self._positions[event.span] = _Position(event.span)
        elif event.parent in self.calls and event.type in _ENDS:
            self._end(self.calls[event.parent], event)
        elif above.call is not None:
            self._add_nested(above.call, event)
        elif above.branch:
            self._add_recorded(above.branch, event)

    def _end(self, call: Request, event: Event) -> None:
        call.outcome = event  # calls that an answer asks for are not part of the call
        self._positions[event.span] = self._positions[call.event.parent or ""]

    def _add_nested(self, call: Request, event: Event) -> None:
        """Keep the nested calls, and what changed the result that the caller saw."""
        if event.type in OUTCOMES:
            call.nested.append(_name_of(event))
        if event.parent != call.event.span:
            return
        if event.type == "hook.fired" and event.payload.get("event") == "PostToolUse":
            call.seen = event
        elif event.type == "schema.violation":
            call.violation = event
        elif event.type == "call.settled":
            call.settled = event

    def _add_recorded(self, branch: str, event: Event) -> None:
        ahead = self._next.setdefault(branch, _NextRequest())
        if event.type == "approval.requested":
            ahead.asked = event
        elif event.type == "call.settled" and ahead.asked is not None and event.parent == ahead.asked.span:
            name = str(ahead.asked.payload.get("name"))
            self._add(branch, Request("approval", name, ahead.asked, ahead.given, settled=event, asked=ahead.asked))
        elif event.type == "hook.fired" and event.payload.get("event") == "PreToolUse":
            ahead.given = event.payload.get("input")
        elif event.type == "hook.fired":
            if event.payload.get("event") in _FIRED:
                self._add(branch, Request("hook", str(event.payload["event"]), event))
        elif event.type in OUTCOMES:
            self._open_call(branch, event, ahead)
        elif event.type == "tool.denied":
            name = str(event.payload.get("name"))
            self._add(branch, Request("call", name, event, ahead.given, asked=ahead.asked))
        elif self._is_request(event):
            self._add_event(branch, event)

    def _add_event(self, branch: str, event: Event) -> None:
        if event.type == "policy.check":
            if is_about_subject(event.payload):
                self._add(branch, Request("decision", _decision_of(event.payload), event))
            return
        self._add(branch, Request("event", event.type, event))
        if event.type == "run.branch":
            self._positions[event.span] = _Position(event.span)

    def _open_call(self, branch: str, event: Event, ahead: _NextRequest) -> None:
        call = Request("call", _name_of(event), event, ahead.given, asked=ahead.asked)
        self._add(branch, call)
        self.calls[event.span] = call
        inside = _Position(event.span) if event.type == "flow.call" else _Position(branch, call)
        self._positions[event.span] = inside

    def _add(self, branch: str, request: Request) -> None:
        self.branches.setdefault(branch, []).append(request)
        self._next[branch] = _NextRequest()

    def _is_request(self, event: Event) -> bool:
        if event.type == "schema.violation":
            return event.payload.get("subject") == "message"
        return event.type not in _AROUND and event.type not in _SYSTEM


def list_charters(events: Iterable[Event]) -> list[tuple[int, str]]:
    """Return the charters of a session in their order: the number of the event that names each, and its digest."""
    named = (event for event in events if event.type in ("session.start", "session.resumed"))
    return [(event.seq, str(event.payload.get("charter"))) for event in named]


def may_have_effects(bindings: Bindings, names: Iterable[str]) -> bool:
    """Return whether a call of one of the abilities *names* must not happen twice; so is one that is not declared."""
    return any(entry is None or entry["effects"] in DURABLE for entry in map(bindings.entry_of, names))


def _name_of(intent: Event) -> str:
    return str(intent.payload.get(NAMED_BY.get(intent.type.partition(".")[0], "tool_name")))


def args_member(event_type: str) -> str:
    """Return the member of an intent that holds its arguments."""
    return _GIVEN.get(event_type.partition(".")[0], "args")


def decision_name(policy: str, subject: str) -> str:
    """Return the name of the request for a decision about a subject."""
    return f"{subject} of policy {policy}"


def _decision_of(payload: Object) -> str:
    """Return the name of a recorded decision; one whose names are sealed has none that a flow asks for."""
    asked, subject = payload["asked"], payload["subject"]
    policy = asked[0].get("policy") if isinstance(asked, list) else None
    return decision_name(str(policy), str(subject.get("name")))


def given_arguments(request: Request) -> Any:
    """Return the arguments of a call as the flow gave them, sealed parts as they are."""
    if request.given is not None:
        return request.given
    payload = request.event.payload
    if request.kind == "approval":
        return payload.get("given", payload.get("args"))
    return payload.get("args" if request.is_denied else args_member(request.event.type))
