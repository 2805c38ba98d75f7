"""The actions of a request in a session's ledger: what was received, its outcome, and its signals; pure.

A request whose answer was lost is answered from these records, so that nothing is done twice.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import attrs

from deedbook.contract import Event
from deedbook.format.errors import LedgerError, Ok
from deedbook_serve.tasks.run_results import OpenRequests, read_context, refers_to

RECEIVED: Final = "action.received"
STARTED: Final = "action.started"
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
class ActionRecord:
    """One action in the ledger: *outcome* is its recorded end, *result* the ability's result.

    *run* is the session of the prompt's run that it began. *signals* holds the signals of hooks, *requests* the
    requests for approval beneath it.
    """

    id: str
    digest: str
    span: str
    outcome: Mapping[str, Any] | None = None
    result: Any = None
    has_result: bool = False
    run: str = ""
    requests: OpenRequests = attrs.field(default=attrs.Factory(lambda self: OpenRequests(self.span), takes_self=True))
    signals: dict[str, list[dict[str, Any]]] = attrs.field(factory=dict)


def read_actions(events: Iterable[Event], request: str) -> dict[str, ActionRecord]:
    """Return the actions of *request* by their ids; *events* are a session's, with sealed values opened."""
    found: dict[str, ActionRecord] = {}
    above: dict[str, ActionRecord] = {}
    beneath: dict[str, ActionRecord] = {}
    calls: dict[str, ActionRecord] = {}
    below: dict[str, list[Event]] = {}
    for event in events:
        if event.type == RECEIVED and event.payload["request"] == request:
            action = ActionRecord(event.payload["id"], event.payload["digest"], event.span)
            found[action.id] = above[event.span] = beneath[event.span] = action
            continue
        if event.parent in beneath:
            beneath[event.span] = beneath[event.parent]
            beneath[event.span].requests.step(event)
        if event.parent in above:
            _apply_event(above[event.parent], event, above, calls)
        elif event.parent in calls:
            _apply_outcome(calls[event.parent], event)
            below.setdefault(event.parent or "", []).append(event)
    for span, action in calls.items():
        if refers_to(action.result, span):
            action.result = _read_reply(below[span], span) or action.result
    return found


def _read_reply(events: Iterable[Event], span: str) -> Any:
    """Return the outcome of a run that completed; ``None`` for another, and where its record cannot be read."""
    with suppress(LedgerError):
        context = read_context(events, span)
        outcome = context.outcome() if context else None
        return outcome.value if isinstance(outcome, Ok) else None
    return None


def _apply_event(
    action: ActionRecord, event: Event, above: dict[str, ActionRecord], calls: dict[str, ActionRecord]
) -> None:
    """Apply an event directly under an action, or under an event between the action and its call."""
    if event.type == DONE and event.parent == action.span:
        action.outcome = event.payload
    elif event.type == STARTED:
        action.run = event.payload["session"]
    elif event.type == "hook.fired":
        for hook_answer in event.payload["asked"]:
            for name, value in hook_answer.get("signals", {}).items():
                action.signals.setdefault(name, []).append({"hook": hook_answer["hook"], "value": value})
    elif event.type in _INTENTS:
        calls[event.span] = action
    elif event.type.startswith(_BELOW):
        above[event.span] = action


def _apply_outcome(action: ActionRecord, event: Event) -> None:
    """Apply the result of a call, and a change of it by hooks."""
    member = _RESULTS.get(event.type)
    if member is not None:
        action.result, action.has_result = event.payload[member], True
    elif event.type == "hook.fired" and event.payload["event"] == "PostToolUse" and "output" in event.payload:
        action.result = event.payload["output"]
