"""What a ledger holds of the actions of a request: what was asked for, what came of it, and what was told; pure.

A request whose answer was lost is answered again from here, and nothing is done a second time.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from deedbook.contract import Event

RECEIVED: Final = "action.received"
DONE: Final = "action.done"
REFUSED: Final = "action.refused"
GUARD: Final = "ability_guard"
PREFLIGHT: Final = "ability_preflight"

_INTENTS: Final = frozenset({"tool.call", "llm.request", "flow.call", "memory.call"})
_RESULTS: Final[Mapping[str, str]] = {
    "tool.result": "result",
    "llm.response": "response",
    "flow.result": "result",
    "memory.result": "result",
}
_BELOW: Final = ("task.", "approval.")
"""Families whose events stand between an action and its call."""


@attrs.define
class Act:
    """One action as the ledger holds it: *done* says what came of it, *result* what the ability gave.

    *signals* is what hooks said, *approval* the request that waits for a person; ``None`` where there was none.
    """

    id: str
    digest: str
    span: str
    done: Mapping[str, Any] | None = None
    result: Any = None
    gave: bool = False
    approval: str | None = None
    signals: dict[str, list[dict[str, Any]]] = attrs.field(factory=dict)


def acts(events: Iterable[Event], request: str) -> dict[str, Act]:
    """Return the actions of *request* by their ids; *events* are a session's, with what was sealed opened."""
    found: dict[str, Act] = {}
    above: dict[str, Act] = {}
    calls: dict[str, Act] = {}
    for event in events:
        if event.type == RECEIVED and event.payload["request"] == request:
            act = Act(event.payload["id"], event.payload["digest"], event.span)
            found[act.id] = above[event.span] = act
        elif event.parent in above:
            _take(above[event.parent], event, above, calls)
        elif event.parent in calls:
            _outcome(calls[event.parent], event)
    return found


def _take(act: Act, event: Event, above: dict[str, Act], calls: dict[str, Act]) -> None:
    """Take in what hangs right under an action, or under what stands between it and its call."""
    if event.type == DONE and event.parent == act.span:
        act.done = event.payload
    elif event.type == "hook.fired":
        for asked in event.payload["asked"]:
            for name, value in asked.get("signals", {}).items():
                act.signals.setdefault(name, []).append({"hook": asked["hook"], "value": value})
    elif event.type in _INTENTS:
        calls[event.span] = act
    elif event.type.startswith(_BELOW):
        above[event.span] = act
        if event.type == "approval.requested":
            act.approval = event.payload["approval"]


def _outcome(act: Act, event: Event) -> None:
    """Take in what a call gave, and what hooks have left of that."""
    member = _RESULTS.get(event.type)
    if member is not None:
        act.result, act.gave = event.payload[member], True
    elif event.type == "hook.fired" and event.payload["event"] == "PostToolUse" and "output" in event.payload:
        act.result = event.payload["output"]
