"""The account of a session from its ledger, in the order in which people ask; a fold, which calls nothing.

It holds every use of an ability with its gates and its outcome, the messages, the usage, and later erasures, excisions
and corrections.
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Event
from deedbook.format.families import NOTHING_DECLARED, OUTCOMES, DeclaredTypes
from deedbook.format.folds import NAMED_BY, Snapshot, SnapshotFold
from deedbook.policy.subjects import is_about_subject
from deedbook_inspect.event_tree import EventTree, TreeFold

_ARGS_MEMBERS: Final[Mapping[str, str]] = MappingProxyType({"llm": "request"})
_RESULT_MEMBERS: Final[Mapping[str, str]] = MappingProxyType({"llm": "response"})
_ENDS: Final = frozenset(outcome for outcomes in OUTCOMES.values() for outcome in outcomes)
_GATE_EVENTS: Final = frozenset({"hook.fired", "policy.check", "schema.violation"})
_MESSAGES: Final = frozenset({"user.message", "agent.reply"})


@attrs.define(eq=False)
class Use:
    """One use of an ability, or an attempt; *intent* is ``None`` for a denied one (*end* is the denial).

    *gate_events* are the events before it (hooks, policies, violations, approvals), *after* those under its intent or
    its outcome. *depth* counts the calls around it.
    """

    kind: str
    name: str
    args: Any
    gate_events: list[Event]
    intent: Event | None
    end: Event | None
    depth: int
    after: list[Event] = attrs.field(factory=list)

    @property
    def first(self) -> Event:
        """The event that represents the use."""
        found = self.intent or self.end
        assert found is not None
        return found

    @property
    def outcome(self) -> str:
        """Its outcome: ``result``, ``denied``, or the error's; ``unknown`` without one."""
        if self.end is None:
            return "unknown"
        if self.intent is None:
            return "denied"
        return "result" if self.has_result else _get_text(self.end.payload.get("outcome"), "unknown")

    @property
    def has_result(self) -> bool:
        """Whether there is a result."""
        return self.end is not None and self.end.type.endswith((".result", ".response"))

    @property
    def result(self) -> Any:
        """The recorded result; for an error or a denial the whole payload."""
        assert self.end is not None
        member = _RESULT_MEMBERS.get(self.end.type.partition(".")[0], "result")
        return self.end.payload.get(member) if self.has_result else dict(self.end.payload)

    @property
    def milliseconds(self) -> int | None:
        """Its duration by the ledger's clock."""
        return None if self.intent is None or self.end is None else measure_milliseconds(self.intent.ts, self.end.ts)


@attrs.define
class AbilityUsage:
    """The usage of one ability: counts, time in milliseconds, tokens, and dollars if they are recorded."""

    uses: int = 0
    errors: int = 0
    denied: int = 0
    milliseconds: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float | None = None

    def add(self, use: Use) -> None:
        """Add a use that has ended."""
        self.uses += 1
        self.errors += use.outcome not in ("result", "denied")
        self.denied += use.outcome == "denied"
        self.milliseconds += use.milliseconds or 0
        usage = use.result.get("usage") if use.has_result and isinstance(use.result, dict) else None
        if use.kind == "model" and isinstance(usage, dict):
            self.tokens_in += _get_count(usage.get("input_tokens"))
            self.tokens_out += _get_count(usage.get("output_tokens"))
            if isinstance(usage.get("cost_usd"), int | float):
                self.dollars = (self.dollars or 0) + usage["cost_usd"]


@attrs.define(eq=False)
class SessionAccount:
    """The account of one ledger.

    *erased* holds each erased digest, *excised* each excised line, *amended* each corrected line, with the events that
    record it.
    """

    snapshot: Snapshot
    tree: EventTree
    events: list[Event] = attrs.field(factory=list)
    uses: list[Use] = attrs.field(factory=list)
    messages: list[Event] = attrs.field(factory=list)
    rounds: list[Event] = attrs.field(factory=list)
    erased: dict[str, Event] = attrs.field(factory=dict)
    excised: dict[int, Event] = attrs.field(factory=dict)
    amended: dict[int, list[Event]] = attrs.field(factory=dict)
    forked: Event | None = None

    def compute_usage(self) -> dict[str, AbilityUsage]:
        """Return the usage by ability, in the order of first use."""
        found: dict[str, AbilityUsage] = {}
        for use in self.uses:
            found.setdefault(use.name, AbilityUsage()).add(use)
        return found


class AccountFold:
    """The fold whose state is a `SessionAccount`; use one for each ledger."""

    def __init__(self, declared: DeclaredTypes = NOTHING_DECLARED) -> None:
        self._snapshot, self._tree = SnapshotFold(declared), TreeFold(declared)
        self._waiting: dict[str | None, list[Event]] = {}
        self._open: dict[str, Use] = {}
        self._depth: dict[str | None, int] = {None: 0}
        self._under: dict[str, Use] = {}

    def start(self) -> SessionAccount:
        """Return an empty account."""
        return SessionAccount(self._snapshot.start(), self._tree.start())

    def step(self, state: SessionAccount, event: Event) -> SessionAccount:
        """Apply *event*."""
        state.snapshot, state.tree = self._snapshot.step(state.snapshot, event), self._tree.step(state.tree, event)
        state.events.append(event)
        self._depth[event.span] = self._depth.get(event.parent, 0) + (event.type in OUTCOMES)
        if event.type in OUTCOMES or event.type == "tool.denied":
            self._begin(state, event)
        elif event.type in _ENDS:
            self._end(event)
        elif event.type in _GATE_EVENTS or event.type.startswith("approval."):
            self._add_gate_event(state, event)
        elif event.type in _MESSAGES:
            state.messages.append(event)
        elif event.type.startswith("call.") and event.parent in self._under:
            self._under[event.parent].after.append(event)
        self._apply_correction(state, event)
        return state

    def _begin(self, state: SessionAccount, event: Event) -> None:
        family = event.type.partition(".")[0]
        refused = event.type == "tool.denied"
        name = event.payload.get("name" if refused else NAMED_BY.get(family, "tool_name"))
        kind = event.payload.get("kind") if refused else {"llm": "model"}.get(family, family)
        use = Use(
            kind=_get_text(kind, "tool"),
            name=_get_text(name, "[sealed]"),
            args=event.payload.get("args" if refused else _ARGS_MEMBERS.get(family, "args")),
            gate_events=self._take_gate_events(event.parent),
            intent=None if refused else event,
            end=event if refused else None,
            depth=self._depth.get(event.parent, 0),
        )
        state.uses.append(use)
        if not refused:
            self._open[event.span] = self._under[event.span] = use

    def _take_gate_events(self, cause: str | None) -> list[Event]:
        """Return the events kept for the call under *cause*, also those of an approval."""
        asked = self._waiting.pop(cause, [])
        for event in asked:
            if event.type == "approval.requested":
                self._waiting.pop(event.parent, None)
        return asked

    def _end(self, event: Event) -> None:
        use = self._open.pop(event.parent or "", None)
        if use is not None:
            use.end = event
            self._under[event.span] = use

    def _add_gate_event(self, state: SessionAccount, event: Event) -> None:
        """Keep an event about a call for the call that follows under the same cause.

        Other hooks, and policies about a subject, stand alone.

        A request and its answer hang one under the other, and the call under the answer.
        """
        use = self._under.get(event.parent or "")
        if use is not None and (event.type == "schema.violation" or event.payload.get("event") == "PostToolUse"):
            use.after.append(event)
        elif is_about_subject(event.payload) or (event.type == "hook.fired" and "ability" not in event.payload):
            state.rounds.append(event)
        else:
            above = self._waiting.pop(event.parent, [])
            if event.type.startswith("approval."):
                self._waiting[event.span] = [*above, event]
            self._waiting[event.parent] = [*above, event]

    def _apply_correction(self, state: SessionAccount, event: Event) -> None:
        payload = event.payload
        if event.type == "payload.erased":
            digests = payload.get("digests")
            state.erased |= {str(digest): event for digest in digests} if isinstance(digests, list) else {}
        elif event.type == "ledger.excised" and isinstance(payload.get("seq"), int):
            state.excised[payload["seq"]] = event
        elif event.type == "event.amended" and isinstance(payload.get("seq"), int):
            state.amended.setdefault(payload["seq"], []).append(event)
        elif event.type == "session.forked":
            state.forked = event


def measure_milliseconds(first: str, last: str) -> int:
    """Return the milliseconds between two times of a ledger; 0 if one is invalid."""
    try:
        passed = datetime.fromisoformat(last) - datetime.fromisoformat(first)
    except ValueError:
        return 0
    return max(0, round(passed.total_seconds() * 1000))


def _get_text(value: Any, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


def _get_count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
