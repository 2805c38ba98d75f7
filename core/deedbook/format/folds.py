"""Folds: state computed from events: the snapshot and the metrics of a ledger. No I/O.

`step` may change a fold's state in place, and returns it; `start` creates a new one each time. The same folds run live
behind a writer and later over a file, with the same result.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

import attrs

from deedbook.contract import Event, Object

from .families import NOTHING_DECLARED, OUTCOMES, RUN_ENDS, DeclaredTypes

S = TypeVar("S")

AMENDED: Final = "event.amended"
"""The event that corrects the payload of an earlier one, which stays as it is."""
NAMED_BY: Final[Mapping[str, str]] = MappingProxyType(
    {"tool": "tool_name", "llm": "ability", "flow": "flow", "memory": "ability"}
)
"""The member of an intent or an outcome that names the ability, by the first part of the event's type."""


class Fold(Protocol[S]):
    """A computation of state from events."""

    def start(self) -> S:
        """Return the state before the first event."""

    def step(self, state: S, event: Event) -> S:
        """Return the state after *event*."""


def fold(how: Fold[S], events: Iterable[Event]) -> S:
    """Return the state after all *events*."""
    state = how.start()
    for event in events:
        state = how.step(state, event)
    return state


# --- snapshot ---------------------------------------------------------------------------------------------------------


@attrs.define
class Snapshot:
    """The state of a session. The first five members are those of seed 000's replay snapshot.

    *closed*: it has ended; *output*: of the last worker's report; *cost*: tokens ``input`` and ``output``, and ``usd``
    where a provider reports it; *agents*: the last hand-over of each class of actor; *tools_invoked*: every
    ``tool.call``. *calls* counts the intents of each ability; *unknown* those without an outcome, or with a lost one;
    *layers* the events of each layer. *amendments* are the changes by later events, each with its own seq as ``event``;
    the other members are as recorded.
    """

    closed: bool = False
    output: Any = None
    cost: dict[str, float] = attrs.field(factory=lambda: {"input": 0, "output": 0})
    agents: dict[str, Any] = attrs.field(factory=dict)
    tools_invoked: list[Object] = attrs.field(factory=list)
    events: int = 0
    ok: bool | None = None
    reason: str | None = None
    enforcement: str | None = None
    charter: str | None = None
    principal: Any = None
    prompt: Any = None
    reply: Any = None
    skill: Any = None
    roles: list[Any] = attrs.field(factory=list)
    context: str | None = None
    attempts: int = 0
    reports: int = 0
    denied: list[Object] = attrs.field(factory=list)
    errors: list[Object] = attrs.field(factory=list)
    violations: int = 0
    calls: Counter[str] = attrs.field(factory=Counter)
    unknown: int = 0
    layers: Counter[str] = attrs.field(factory=Counter)
    amendments: list[Object] = attrs.field(factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot as JSON."""
        counted = {"calls": dict(self.calls), "layers": dict(sorted(self.layers.items()))}
        own = attrs.asdict(self, recurse=False, filter=lambda field, value: field.name != "amendments" or bool(value))
        return {"schema_version": "v1", **own, **counted}


class SnapshotFold:
    """The fold whose state is a `Snapshot`; *declared* has the event types of plugins."""

    def __init__(self, declared: DeclaredTypes = NOTHING_DECLARED) -> None:
        self._declared = declared

    def start(self) -> Snapshot:
        """Return an empty snapshot."""
        return Snapshot()

    def step(self, state: Snapshot, event: Event) -> Snapshot:
        """Add *event*."""
        state.events += 1
        state.layers[self._declared.layer(event.type) or "none"] += 1
        if event.type in OUTCOMES:
            state.calls[_ability(event)] += 1
            state.unknown += 1
        elif event.type in _CLOSING and event.payload.get("outcome") != "unknown":
            state.unknown = max(state.unknown - 1, 0)  # older forms may have an outcome of nothing
        take = _TAKE.get(event.type)
        if take:
            take(state, event.payload, event)
        elif event.type.startswith("context."):
            _take_context(state, event)
        return state


def _take_start(state: Snapshot, payload: Object, _: Event) -> None:
    state.enforcement, state.charter = payload.get("enforcement"), payload.get("charter")
    state.principal, state.prompt = payload.get("principal"), payload.get("prompt")  # seed 000 says it there


def _take_end(state: Snapshot, payload: Object, _: Event) -> None:
    state.closed, state.ok, state.reason = True, payload.get("ok"), payload.get("reason")


def _take_message(state: Snapshot, payload: Object, _: Event) -> None:
    state.prompt = payload.get("text")


def _take_reply(state: Snapshot, payload: Object, _: Event) -> None:
    state.reply = payload.get("reply")


def _take_transition(state: Snapshot, payload: Object, event: Event) -> None:
    if payload.get("to") in RUN_ENDS:
        return
    state.agents[event.actor] = payload.get("to")
    state.roles.append(payload.get("to"))


def _take_report(state: Snapshot, payload: Object, _: Event) -> None:
    state.output = payload.get("output")
    state.reports += 1


def _take_call(state: Snapshot, payload: Object, _: Event) -> None:
    state.tools_invoked.append(payload)


def _take_response(state: Snapshot, payload: Object, _: Event) -> None:
    for name, member in (("input", "input_tokens"), ("output", "output_tokens"), ("usd", "cost_usd")):
        if spent := _usage(payload, member):
            state.cost[name] = state.cost.get(name, 0) + spent


def _take_error(state: Snapshot, payload: Object, _: Event) -> None:
    state.errors.append(payload)


def _take_denied(state: Snapshot, payload: Object, _: Event) -> None:
    state.denied.append(payload)


def _take_violation(state: Snapshot, _: Object, __: Event) -> None:
    state.violations += 1


def _take_amendment(state: Snapshot, payload: Object, event: Event) -> None:
    state.amendments.append({"event": event.seq, **payload})


def _take_skill(state: Snapshot, payload: Object, _: Event) -> None:
    state.skill = payload.get("skill")


def _take_context(state: Snapshot, event: Event) -> None:
    move = event.type.removeprefix("context.")
    if move != "noted":
        state.context = move.upper()
    if move == "executing":
        state.attempts += 1


_CLOSING: Final = frozenset(outcome for outcomes in OUTCOMES.values() for outcome in outcomes)
_TAKE: Final[Mapping[str, Callable[[Snapshot, Object, Event], None]]] = MappingProxyType(
    {
        "session.start": _take_start,
        "session.end": _take_end,
        "user.message": _take_message,
        "agent.reply": _take_reply,
        "agent.transition": _take_transition,
        "worker.report": _take_report,
        "tool.call": _take_call,
        "llm.response": _take_response,
        "tool.error": _take_error,
        "llm.error": _take_error,
        "flow.error": _take_error,
        "tool.denied": _take_denied,
        "schema.violation": _take_violation,
        "skill.invoke": _take_skill,
        AMENDED: _take_amendment,
    }
)


# --- metrics ----------------------------------------------------------------------------------------------------------


@attrs.define
class Metrics:
    """The facts that gates may read.

    *calls*: the intents of each ability so far; *usage*: the usage of models; *started*: when the session began (RFC
    3339), empty before.
    """

    calls: dict[str, int] = attrs.field(factory=dict)
    usage: dict[str, float] = attrs.field(factory=dict)
    started: str = ""

    def facts(self) -> dict[str, Any]:
        """Return copies under the names that a gate's ``reads`` uses, such as ``session.calls``."""
        return {"session.calls": dict(self.calls), "session.usage": dict(self.usage), "session.started": self.started}


class MetricsFold:
    """The fold whose state is `Metrics`."""

    def start(self) -> Metrics:
        """Return empty metrics."""
        return Metrics()

    def step(self, state: Metrics, event: Event) -> Metrics:
        """Count *event*."""
        if event.type in OUTCOMES:
            name = _ability(event)
            state.calls[name] = state.calls.get(name, 0) + 1
        elif event.type == "session.start":
            state.started = event.ts
        elif event.type == "llm.response":
            for member in ("input_tokens", "output_tokens", "cost_usd"):
                spent = _usage(event.payload, member)
                if spent or (spent is not None and member == "cost_usd"):  # a cost of zero is recorded, too
                    state.usage[member] = state.usage.get(member, 0) + spent
        return state


def _ability(event: Event) -> str:
    """Return the name of an intent's or outcome's ability; empty if it is sealed."""
    name = event.payload.get(NAMED_BY[event.type.partition(".")[0]])
    return name if isinstance(name, str) else "[sealed]"


def _usage(payload: Object, member: str) -> float | None:
    """Return the usage in a model's answer; ``None`` if it is missing or sealed."""
    response = payload.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    spent = usage.get(member) if isinstance(usage, dict) else None
    return spent if isinstance(spent, int | float) and not isinstance(spent, bool) else None
