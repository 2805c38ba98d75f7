"""Ending a session whose process died: what was begun and has no outcome becomes unknown, and nothing retries it."""

from collections.abc import Iterable

from . import canonical
from .context import LIVE, ContextFold
from .contracts import Event
from .events import OUTCOMES, Entry, label
from .folds import NAMED_BY, fold
from .ledger import Ledger

REASON = "interrupted: the process died before the session ended"


def close_interrupted(ledger: Ledger, events: Iterable[Event]) -> int:
    """Append what *events*, all of a reopened *ledger*, leave open, then ``session.end``; return how many calls."""
    told = list(events)
    entries = _outcomes(ledger, told)
    lost = len(entries)
    context = fold(ContextFold(), told)
    if context is not None and context.state in LIVE:
        cause = next((event.span for event in reversed(told) if event.type == "flow.call"), ledger.root)
        entries.append(_entry(ledger, "context.halted", cause, {"reason": REASON}))
    entries.append(_entry(ledger, "session.end", ledger.root, {"ok": False, "reason": REASON}))
    ledger.append(entries, durable=True)
    return lost


def close_lost(ledger: Ledger, events: Iterable[Event]) -> None:
    """Append an unknown outcome for each intent among *events* that has none; the session goes on."""
    entries = _outcomes(ledger, events)
    if entries:
        ledger.append(entries)


def _outcomes(ledger: Ledger, events: Iterable[Event]) -> list[Entry]:
    """Return the outcomes that are missing: a nested call's before that of the call it serves."""
    return [_unknown(ledger, event) for event in reversed(_without_outcome(events))]


def _without_outcome(events: Iterable[Event]) -> list[Event]:
    """Return the intents that nothing closed, in order."""
    begun: dict[str, Event] = {}
    for event in events:
        if event.type in OUTCOMES:
            begun[event.span] = event
        elif event.parent in begun and event.type in OUTCOMES[begun[event.parent].type]:
            del begun[event.parent]
    return list(begun.values())


def _unknown(ledger: Ledger, intent: Event) -> Entry:
    family = intent.type.partition(".")[0]
    name = NAMED_BY[family]
    payload = {
        name: intent.payload.get(name),
        "code": "OUTCOME_UNKNOWN",
        "message": "it was interrupted while this call ran; whether it had its effect is not known",
        "outcome": "unknown",
        "retryable": False,
    }
    return _entry(ledger, f"{family}.error", intent.span, payload, intent.principal)


def _entry(ledger: Ledger, event_type: str, cause: str, payload: object, principal: str | None = None) -> Entry:
    return Entry(label(event_type, "system", principal), ledger.span(), cause, canonical.encode(payload))
