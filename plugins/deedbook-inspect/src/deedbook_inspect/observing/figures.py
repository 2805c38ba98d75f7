"""Figures of ledgers: calls, their time and outcome, tokens, cost, denials, approvals; a fold, pure.

Its size does not grow with the ledger: durations are in buckets, tables have a bound, and only open calls are kept.
``docs/observability.md`` has the definitions.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Event, Object
from deedbook.format.canonical import MAX_INTEGER
from deedbook.format.families import NOTHING_DECLARED, OUTCOMES, DeclaredTypes
from deedbook.format.folds import NAMED_BY

from .histograms import Histogram
from .prices import Prices
from .tables import Table, count_word, read_name
from .times import parse_time

__all__ = ["AbilityCalls", "Figures", "FiguresFold", "ModelUsage", "Window"]

Providers = Callable[[str], Mapping[str, str]]
"""The provider behind each model ability of the charter with a digest."""

_KINDS: Final[Mapping[str, str]] = MappingProxyType({"llm": "model"})
_MOST_OPEN: Final = 65_536
_DECIDERS: Final = ("hook", "policy", "skill", "scope", "feature")
_NO_ROLE: Final = "[none]"
_AGENT: Final = "agent:"


@attrs.frozen
class Window:
    """A time window in milliseconds since the epoch, with *since* but without *until*; ``None``: open."""

    since: int | None = None
    until: int | None = None

    def contains(self, at: int | None) -> bool:
        """Return whether the moment *at* is within; an unreadable time is only in a window without ends."""
        if at is None:
            return self.since is None and self.until is None
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


@attrs.define
class AbilityCalls:
    """The calls of one ability: their *outcomes*, the number of *late* results, their durations."""

    outcomes: Counter[str] = attrs.field(factory=Counter)
    late: int = 0
    denied: int = 0
    time: Histogram = attrs.field(factory=Histogram)


@attrs.define
class ModelUsage:
    """The usage of one model by one role; costs are in billionths of a US dollar.

    *cached_tokens* is ``None`` if no answer reported it. *unpriced* counts the answers of unknown cost.
    """

    outcomes: Counter[str] = attrs.field(factory=Counter)
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    recorded_cost: int = 0
    priced_cost: int = 0
    unpriced: int = 0
    time: Histogram = attrs.field(factory=Histogram)


@attrs.define
class RoleCalls:
    """The calls of one role: of models and of anything else, and denials."""

    models: int = 0
    others: int = 0
    denied: int = 0


@attrs.frozen
class _OpenCall:
    """A call without outcome: its start, its role, and its ability or model."""

    at: int | None
    calls: AbilityCalls
    role: str
    ability: str
    model: str | None = None


@attrs.define
class Figures:
    """What was counted. *first* and *last* are the earliest and the latest time of an event, as lines have them."""

    ledgers: int = 0
    events: int = 0
    first: str = ""
    last: str = ""
    sessions: Counter[str] = attrs.field(factory=Counter)
    types: Table[Counter[str]] = attrs.field(factory=partial(Table, Counter))
    calls: Table[AbilityCalls] = attrs.field(factory=partial(Table, AbilityCalls))
    errors: Table[Counter[str]] = attrs.field(factory=partial(Table, Counter))
    denials: Table[Counter[str]] = attrs.field(factory=partial(Table, Counter))
    hooks: Table[Counter[str]] = attrs.field(factory=partial(Table, Counter))
    policies: Table[Counter[str]] = attrs.field(factory=partial(Table, Counter))
    models: Table[ModelUsage] = attrs.field(factory=partial(Table, ModelUsage))
    roles: Table[RoleCalls] = attrs.field(factory=partial(Table, RoleCalls))
    violations: Counter[str] = attrs.field(factory=Counter)
    approvals: Counter[str] = attrs.field(factory=Counter)
    approval_wait: Histogram = attrs.field(factory=Histogram)
    # of the ledger that is being read
    charter: str = ""
    declared: dict[str, Mapping[str, Any]] = attrs.field(factory=dict)
    ended: str = ""
    has_started: bool = False
    open: dict[str, _OpenCall] = attrs.field(factory=dict)
    open_approvals: dict[str, int | None] = attrs.field(factory=dict)


def _nothing_declared(_charter: str) -> DeclaredTypes:
    return NOTHING_DECLARED


class FiguresFold:
    """The fold whose state is `Figures`. Call `close` at the end of each ledger.

    *approvals*: whether approvals are counted. The workspace ledger has them all, so with it those of sessions are left
    out.
    """

    def __init__(
        self,
        *,
        providers: Providers | None = None,
        prices: Prices | None = None,
        window: Window | None = None,
        types: Callable[[str], DeclaredTypes] = _nothing_declared,
    ) -> None:
        self._types = types
        self._providers: Providers = providers or (lambda _: {})
        self._prices, self._window = prices or Prices(), window or Window()
        self.approvals = True

    def start(self) -> Figures:
        """Return empty figures."""
        return Figures()

    def step(self, state: Figures, event: Event) -> Figures:
        """Count *event*. A call belongs to the window that it began in, whenever it ended."""
        if event.type == "session.start":
            state.charter = read_name(event.payload.get("charter"), "")
            state.declared.update(self._types(state.charter).rows)
        elif event.type == "session.resumed":
            state.declared.update(self._types(read_name(event.payload.get("charter"), "")).rows)
        elif event.type == "session.end":
            state.ended = _describe_end(event.payload.get("ok"))
        at = parse_time(event.ts)
        family, _, what = event.type.partition(".")
        if event.type in _CLOSING and event.parent in state.open:
            self._end(state, event, at)
        if not self._window.contains(at):
            return state
        state.events += 1
        state.first, state.last = min(state.first or event.ts, event.ts), max(state.last, event.ts)
        state.types.get(event.type)[""] += 1
        if event.type in OUTCOMES:
            self._begin(state, event, family, at)
        elif family == "approval":
            if self.approvals:
                _apply_approval(state, event.payload, what, at)
        elif take := _HANDLERS.get(event.type):
            take(state, event)
        return state

    def close(self, state: Figures, *, live: bool = False) -> Figures:
        """End a ledger: calls without outcome are ``open`` while a process writes it (*live*), else ``unknown``."""
        for each in state.open.values():
            _count_end(each, "open" if live else "unknown", state, self._find_provider(state, each))
        if state.has_started:
            state.sessions[state.ended or ("open" if live else "interrupted")] += 1
        state.approvals["waiting"] += len(state.open_approvals)
        state.ledgers += 1
        state.charter, state.ended, state.has_started = "", "", False
        state.open, state.open_approvals = {}, {}
        return state

    def _begin(self, state: Figures, event: Event, family: str, at: int | None) -> None:
        ability = read_name(event.payload.get(NAMED_BY.get(family, "ability")))
        calls = state.calls.get(_KINDS.get(family, family), ability)
        role, model = _find_role(event), None
        if family == "llm":
            request = event.payload.get("request")
            members: Object = request if isinstance(request, dict) else {}
            role, model = read_name(members.get("role"), role), read_name(members.get("model"), "[unknown]")
            state.roles.get(role).models += 1
        else:
            state.roles.get(role).others += 1
        if len(state.open) >= _MOST_OPEN:
            oldest = next(iter(state.open))
            lost = state.open.pop(oldest)
            _count_end(lost, "unknown", state, self._find_provider(state, lost))
        state.open[event.span] = _OpenCall(at, calls, role, ability, model)

    def _end(self, state: Figures, event: Event, at: int | None) -> None:
        """Count the outcome of a call; the duration of a lost call is unknown."""
        call = state.open.pop(event.parent or "")
        outcome = "ok" if event.type.endswith(_GOOD) else read_name(event.payload.get("outcome"), "failed")
        if outcome != "ok":
            family = event.type.partition(".")[0]
            code = read_name(event.payload.get("code"))
            count_word(state.errors.get(_KINDS.get(family, family), call.ability, code), outcome)
        call.calls.late += event.payload.get("late") is True
        took = at - call.at if at is not None and call.at is not None and outcome != "unknown" else -1
        maker = self._find_provider(state, call)
        model_usage = _count_end(call, outcome, state, maker, _find_model(event.payload))
        for time in (call.calls.time, *([model_usage.time] if model_usage else [])):
            if took >= 0:  # negative if the clock was set back meanwhile
                time.add(took)
        if model_usage and outcome == "ok":
            self._count_usage(
                model_usage, maker, _find_model(event.payload) or call.model or "", _find_usage(event.payload)
            )

    def _find_provider(self, state: Figures, call: _OpenCall) -> str:
        return self._providers(state.charter).get(call.ability, "[unknown]") if call.model is not None else ""

    def _count_usage(self, model_usage: ModelUsage, provider: str, model: str, usage: Object) -> None:
        read, written, cached = (_get_count(usage, name) for name in _TOKENS)
        model_usage.input_tokens, model_usage.output_tokens = (
            model_usage.input_tokens + (read or 0),
            model_usage.output_tokens + (written or 0),
        )
        if cached is not None:
            model_usage.cached_tokens = (model_usage.cached_tokens or 0) + cached
        if (cost := _get_cost(usage)) is not None:
            model_usage.recorded_cost += cost
        elif (price := self._prices.compute_cost(provider, model, (read or 0, written or 0, cached or 0))) is not None:
            model_usage.priced_cost += price
        else:
            model_usage.unpriced += 1


_TOKENS: Final = ("input_tokens", "output_tokens", "cached_input_tokens")
_GOOD: Final = (".result", ".response")
_CLOSING: Final = frozenset(outcome for outcomes in OUTCOMES.values() for outcome in outcomes)


def _count_end(
    call: _OpenCall, outcome: str, state: Figures, provider: str, model: str | None = None
) -> ModelUsage | None:
    """Count the end of a call for its ability, and for its model if it has one."""
    count_word(call.calls.outcomes, outcome)
    if call.model is None:
        return None
    model_usage = state.models.get(provider, model or call.model, call.role)
    count_word(model_usage.outcomes, outcome)
    return model_usage


def _describe_end(ok: Any) -> str:
    """Return how a session ended; the ends of older forms do not say whether it succeeded."""
    return "ok" if ok is True else "failed" if ok is False else "ended"


def _find_response(payload: Object) -> Object:
    response = payload.get("response")
    return response if isinstance(response, dict) else payload


def _find_model(payload: Object) -> str | None:
    model = _find_response(payload).get("model")
    return model[:200] if isinstance(model, str) else None


def _find_usage(payload: Object) -> Object:
    usage = _find_response(payload).get("usage")
    return usage if isinstance(usage, dict) else {}


def _get_count(usage: Object, name: str) -> int | None:
    value = usage.get(name)
    return value if type(value) is int and 0 <= value <= MAX_INTEGER else None


def _get_cost(usage: Object) -> int | None:
    """Return the recorded cost in billionths of a dollar; ``None`` without one that is an amount of money."""
    value = usage.get("cost_usd")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_INTEGER:
        return None
    return round(value * 1_000_000_000)


def _find_role(event: Event) -> str:
    who = event.principal or ""
    return who.removeprefix(_AGENT) if who.startswith(_AGENT) else _NO_ROLE


def _apply_start(state: Figures, _: Event) -> None:
    state.has_started = True


def _apply_denial(state: Figures, event: Event) -> None:
    """Count a denial under its decider: a hook, a policy, a skill's or a client's scope, a feature, else the door."""
    payload = event.payload
    kind, name = read_name(payload.get("kind")), read_name(payload.get("name"))
    by = payload.get("by")
    who = next((each for each in _DECIDERS if each in by), "door") if isinstance(by, dict) else "door"
    named = read_name(by.get(who), "") if isinstance(by, dict) else ""
    state.denials.get(kind, name, read_name(payload.get("code")), who, named)[""] += 1
    state.calls.get(kind, name).denied += 1
    state.roles.get(_find_role(event)).denied += 1


def _apply_hooks(state: Figures, event: Event) -> None:
    about = read_name(event.payload.get("event"))
    for each in _list_objects(event.payload.get("asked")):
        count_word(state.hooks.get(read_name(each.get("hook")), about), read_name(each.get("decision")))


def _apply_policies(state: Figures, event: Event) -> None:
    mode = read_name(event.payload.get("enforcement"))
    for each in _list_objects(event.payload.get("asked")):
        count_word(state.policies.get(read_name(each.get("policy")), mode), read_name(each.get("decision")))


def _apply_violation(state: Figures, event: Event) -> None:
    count_word(state.violations, read_name(event.payload.get("subject")))


def _apply_approval(state: Figures, payload: Object, what: str, at: int | None) -> None:
    """Count the end of a request; its wait lasts from its own time until its answer."""
    identity = read_name(payload.get("approval"))
    if what == "requested" and len(state.open_approvals) < _MOST_OPEN:
        state.open_approvals[identity] = parse_time(read_name(payload.get("requested"), "")) or at
        state.approvals["requested"] += 1
    elif identity in state.open_approvals and (outcome := _ANSWERS.get((what, payload.get("answer")))):
        request_time = state.open_approvals.pop(identity)
        state.approvals[outcome] += 1
        if request_time is not None and at is not None and at >= request_time and outcome in ("granted", "refused"):
            state.approval_wait.add(at - request_time)


def _list_objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


_ANSWERS: Final[Mapping[tuple[str, Any], str]] = MappingProxyType(
    {
        ("granted", None): "granted",
        ("refused", None): "refused",
        ("expired", None): "expired",
        ("withdrawn", None): "withdrawn",
        ("answered", "approve"): "granted",
        ("answered", "deny"): "refused",
    }
)
_HANDLERS: Final[Mapping[str, Callable[[Figures, Event], None]]] = MappingProxyType(
    {
        "session.start": _apply_start,
        "tool.denied": _apply_denial,
        "hook.fired": _apply_hooks,
        "policy.check": _apply_policies,
        "schema.violation": _apply_violation,
    }
)
