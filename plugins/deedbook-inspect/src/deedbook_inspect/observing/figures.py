"""What ledgers come to in numbers: calls, their time and outcome, tokens, cost, denials, approvals; a fold, pure.

Its size does not grow with the ledger: durations are in buckets, tables have a bound, and of calls only those that have
no outcome yet are kept. Definitions stand in ``docs/observability.md``.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Event, Object
from deedbook.format.families import NOTHING_DECLARED, OUTCOMES, DeclaredTypes
from deedbook.format.folds import NAMED_BY

from .histograms import Histogram
from .prices import Prices
from .tables import Table, sealed_or, tally
from .times import milliseconds

__all__ = ["Calls", "Figures", "FiguresFold", "Spent", "Window"]

Providers = Callable[[str], Mapping[str, str]]
"""The provider behind each model ability of the charter with a digest."""

_KINDS: Final[Mapping[str, str]] = MappingProxyType({"llm": "model"})
_MOST_OPEN: Final = 65_536
_DECIDERS: Final = ("hook", "policy", "skill", "scope")
_NO_ROLE: Final = "[none]"
_AGENT: Final = "agent:"


@attrs.frozen
class Window:
    """From when (included) until when (not), in milliseconds since the epoch; ``None`` is open."""

    since: int | None = None
    until: int | None = None

    def holds(self, at: int | None) -> bool:
        """Say whether the moment *at* is within; what has no time that can be read is only in a window without ends."""
        if at is None:
            return self.since is None and self.until is None
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


@attrs.define
class Calls:
    """The calls of one ability: how they ended (*outcomes*), which results came *late*, how long they took."""

    outcomes: Counter[str] = attrs.field(factory=Counter)
    late: int = 0
    denied: int = 0
    time: Histogram = attrs.field(factory=Histogram)


@attrs.define
class Spent:
    """What one model spent for one role; costs in billionths of a US dollar.

    *cached* is ``None`` where no answer said how much of what it read was cached. *unpriced* counts the answers of
    which nobody knows what they cost.
    """

    outcomes: Counter[str] = attrs.field(factory=Counter)
    read: int = 0
    written: int = 0
    cached: int | None = None
    recorded: int = 0
    priced: int = 0
    unpriced: int = 0
    time: Histogram = attrs.field(factory=Histogram)


@attrs.define
class Role:
    """What one role asked for: calls of models and of anything else, and denials."""

    models: int = 0
    others: int = 0
    denied: int = 0


@attrs.frozen
class _Open:
    """A call without outcome: when it began, and of whom and what it is."""

    at: int | None
    calls: Calls
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
    calls: Table[Calls] = attrs.field(factory=partial(Table, Calls))
    errors: Table[Counter[str]] = attrs.field(factory=partial(Table, Counter))
    denials: Table[Counter[str]] = attrs.field(factory=partial(Table, Counter))
    hooks: Table[Counter[str]] = attrs.field(factory=partial(Table, Counter))
    policies: Table[Counter[str]] = attrs.field(factory=partial(Table, Counter))
    models: Table[Spent] = attrs.field(factory=partial(Table, Spent))
    roles: Table[Role] = attrs.field(factory=partial(Table, Role))
    violations: Counter[str] = attrs.field(factory=Counter)
    approvals: Counter[str] = attrs.field(factory=Counter)
    waited: Histogram = attrs.field(factory=Histogram)
    # of the ledger that is being read
    charter: str = ""
    declared: dict[str, Mapping[str, Any]] = attrs.field(factory=dict)
    ended: str = ""
    begun: bool = False
    open: dict[str, _Open] = attrs.field(factory=dict)
    asked: dict[str, int | None] = attrs.field(factory=dict)


def _nothing_declared(_charter: str) -> DeclaredTypes:
    return NOTHING_DECLARED


class FiguresFold:
    """The fold whose state is `Figures`. `close` is called at the end of each ledger, before the next one.

    *types* returns the event types that a charter declares, by its digest. *approvals* says whether approvals are
    counted: where the workspace ledger is read, which has them all, sessions' own are left out.
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
        """Return figures of nothing."""
        return Figures()

    def step(self, state: Figures, event: Event) -> Figures:
        """Count *event*. A call belongs to the window that it began in, whenever it ended."""
        if event.type == "session.start":
            state.charter = sealed_or(event.payload.get("charter"), "")
            state.declared.update(self._types(state.charter).rows)
        elif event.type == "session.end":
            state.ended = _ending(event.payload.get("ok"))
        at = milliseconds(event.ts)
        family, _, what = event.type.partition(".")
        if event.type in _CLOSING and event.parent in state.open:
            self._end(state, event, at)
        if not self._window.holds(at):
            return state
        state.events += 1
        state.first, state.last = min(state.first or event.ts, event.ts), max(state.last, event.ts)
        state.types.at(event.type)[""] += 1
        if event.type in OUTCOMES:
            self._begin(state, event, family, at)
        elif family == "approval":
            if self.approvals:
                _take_approval(state, event.payload, what, at)
        elif take := _TAKE.get(event.type):
            take(state, event)
        return state

    def close(self, state: Figures, *, live: bool = False) -> Figures:
        """End a ledger: calls without outcome are ``open`` while somebody writes it (*live*), else ``unknown``."""
        for each in state.open.values():
            _settle(each, "open" if live else "unknown", state, self._maker(state, each))
        if state.begun:
            state.sessions[state.ended or ("open" if live else "interrupted")] += 1
        state.approvals["waiting"] += len(state.asked)
        state.ledgers += 1
        state.charter, state.ended, state.begun = "", "", False
        state.open, state.asked = {}, {}
        return state

    def _begin(self, state: Figures, event: Event, family: str, at: int | None) -> None:
        ability = sealed_or(event.payload.get(NAMED_BY.get(family, "ability")))
        calls = state.calls.at(_KINDS.get(family, family), ability)
        role, model = _role(event), None
        if family == "llm":
            request = event.payload.get("request")
            asked: Object = request if isinstance(request, dict) else {}
            role, model = sealed_or(asked.get("role"), role), sealed_or(asked.get("model"), "[unknown]")
            state.roles.at(role).models += 1
        else:
            state.roles.at(role).others += 1
        if len(state.open) >= _MOST_OPEN:
            oldest = next(iter(state.open))
            lost = state.open.pop(oldest)
            _settle(lost, "unknown", state, self._maker(state, lost))
        state.open[event.span] = _Open(at, calls, role, ability, model)

    def _end(self, state: Figures, event: Event, at: int | None) -> None:
        """Count the outcome of a call; one that was lost took nobody knows how long."""
        begun = state.open.pop(event.parent or "")
        outcome = "ok" if event.type.endswith(_GOOD) else sealed_or(event.payload.get("outcome"), "failed")
        if outcome != "ok":
            family = event.type.partition(".")[0]
            code = sealed_or(event.payload.get("code"))
            tally(state.errors.at(_KINDS.get(family, family), begun.ability, code), outcome)
        begun.calls.late += event.payload.get("late") is True
        took = at - begun.at if at is not None and begun.at is not None and outcome != "unknown" else -1
        maker = self._maker(state, begun)
        spent = _settle(begun, outcome, state, maker, _answered(event.payload))
        for time in (begun.calls.time, *([spent.time] if spent else [])):
            if took >= 0:  # else the clock was set back in between
                time.add(took)
        if spent and outcome == "ok":
            self._pay(spent, maker, _answered(event.payload) or begun.model or "", _usage(event.payload))

    def _maker(self, state: Figures, begun: _Open) -> str:
        return self._providers(state.charter).get(begun.ability, "[unknown]") if begun.model is not None else ""

    def _pay(self, spent: Spent, provider: str, model: str, usage: Object) -> None:
        read, written, cached = (_count(usage, name) for name in _TOKENS)
        spent.read, spent.written = spent.read + (read or 0), spent.written + (written or 0)
        if cached is not None:
            spent.cached = (spent.cached or 0) + cached
        cost = usage.get("cost_usd")
        if isinstance(cost, int | float) and not isinstance(cost, bool):
            spent.recorded += round(cost * 1_000_000_000)
        elif (price := self._prices.cost(provider, model, (read or 0, written or 0, cached or 0))) is not None:
            spent.priced += price
        else:
            spent.unpriced += 1


_TOKENS: Final = ("input_tokens", "output_tokens", "cached_input_tokens")
_GOOD: Final = (".result", ".response")
_CLOSING: Final = frozenset(outcome for outcomes in OUTCOMES.values() for outcome in outcomes)


def _settle(begun: _Open, outcome: str, state: Figures, provider: str, model: str | None = None) -> Spent | None:
    """Count how a call ended, for its ability, and for its model if it is a model's."""
    tally(begun.calls.outcomes, outcome)
    if begun.model is None:
        return None
    spent = state.models.at(provider, model or begun.model, begun.role)
    tally(spent.outcomes, outcome)
    return spent


def _ending(ok: Any) -> str:
    """Return how a session ended; the ends of older forms do not say whether it went well."""
    return "ok" if ok is True else "failed" if ok is False else "ended"


def _response(payload: Object) -> Object:
    response = payload.get("response")
    return response if isinstance(response, dict) else payload


def _answered(payload: Object) -> str | None:
    model = _response(payload).get("model")
    return model[:200] if isinstance(model, str) else None


def _usage(payload: Object) -> Object:
    usage = _response(payload).get("usage")
    return usage if isinstance(usage, dict) else {}


def _count(usage: Object, name: str) -> int | None:
    value = usage.get(name)
    return value if type(value) is int and value >= 0 else None


def _role(event: Event) -> str:
    who = event.principal or ""
    return who.removeprefix(_AGENT) if who.startswith(_AGENT) else _NO_ROLE


def _take_start(state: Figures, _: Event) -> None:
    state.begun = True


def _take_denied(state: Figures, event: Event) -> None:
    """Count a denial by whoever decided: a hook, a policy, a skill's or a client's scope, else the door itself."""
    payload = event.payload
    kind, name = sealed_or(payload.get("kind")), sealed_or(payload.get("name"))
    by = payload.get("by")
    who = next((each for each in _DECIDERS if each in by), "door") if isinstance(by, dict) else "door"
    named = sealed_or(by.get(who), "") if isinstance(by, dict) else ""
    state.denials.at(kind, name, sealed_or(payload.get("code")), who, named)[""] += 1
    state.calls.at(kind, name).denied += 1
    state.roles.at(_role(event)).denied += 1


def _take_hooks(state: Figures, event: Event) -> None:
    about = sealed_or(event.payload.get("event"))
    for each in _objects(event.payload.get("asked")):
        tally(state.hooks.at(sealed_or(each.get("hook")), about), sealed_or(each.get("decision")))


def _take_policies(state: Figures, event: Event) -> None:
    mode = sealed_or(event.payload.get("enforcement"))
    for each in _objects(event.payload.get("asked")):
        tally(state.policies.at(sealed_or(each.get("policy")), mode), sealed_or(each.get("decision")))


def _take_violation(state: Figures, event: Event) -> None:
    tally(state.violations, sealed_or(event.payload.get("subject")))


def _take_approval(state: Figures, payload: Object, what: str, at: int | None) -> None:
    """Count what became of a request; it waited from when it was made, which it says itself, to its answer."""
    identity = sealed_or(payload.get("approval"))
    if what == "requested" and len(state.asked) < _MOST_OPEN:
        state.asked[identity] = milliseconds(sealed_or(payload.get("requested"), "")) or at
        state.approvals["requested"] += 1
    elif identity in state.asked and (outcome := _ANSWERS.get((what, payload.get("answer")))):
        asked = state.asked.pop(identity)
        state.approvals[outcome] += 1
        if asked is not None and at is not None and at >= asked and outcome in ("granted", "refused"):
            state.waited.add(at - asked)


def _objects(value: Any) -> list[dict[str, Any]]:
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
_TAKE: Final[Mapping[str, Callable[[Figures, Event], None]]] = MappingProxyType(
    {
        "session.start": _take_start,
        "tool.denied": _take_denied,
        "hook.fired": _take_hooks,
        "policy.check": _take_policies,
        "schema.violation": _take_violation,
    }
)
