"""Exports finished sessions in other formats: envelope 1.0, as seed 002's own programs read it."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Final

from attrs import evolve

from deedbook.contract import Event
from deedbook.format.canonical import encode
from deedbook.format.errors import LedgerError, fault
from deedbook.format.families import OUTCOMES
from deedbook_audit.upcasting.envelope_1_0 import spell

SOURCE: Final = "deedbook"


def export_seed_002(
    events: Iterable[Event], *, session_id: str, trace_id: str, run: str | None = None
) -> Iterator[bytes]:
    r"""Yield a finished session as lines of envelope 1.0, each with its ``\n``.

    *run* is the id of the session's run, if it is known; each payload has it as ``run_id``. The last reply lists every
    tool call that ran; if there is no reply, one is made (``docs/ledger-format.md``). Raises `LedgerError`: ``USAGE``
    if the session has not ended, ``LEDGER_UNSOUND`` if a tool call has no outcome.
    """
    recorded = list(events)
    _refuse_unfinished(recorded, session_id)
    for event in _list_tool_calls(recorded, session_id):
        yield _encode_line(event, session_id, trace_id, run)


def _refuse_unfinished(recorded: list[Event], session_id: str) -> None:
    if not any(event.type == "session.end" for event in recorded):
        what = f"session {session_id} has no session.end; only finished sessions are exported"
        raise LedgerError(fault("USAGE", f"{what}. End it first: deedbook sessions close {session_id}"))
    closed = {event.parent for event in recorded if event.type in OUTCOMES["tool.call"]}
    for event in recorded:
        if event.type == "tool.call" and event.span not in closed:
            raise LedgerError(fault("LEDGER_UNSOUND", f"the tool.call with seq {event.seq} has no outcome"))


def _list_tool_calls(recorded: list[Event], session_id: str) -> Iterator[Event]:
    """Yield the events with the tool calls listed in one reply, the one that answers the request."""
    calls = [
        {"args": event.payload.get("args"), "span": event.span, "tool_name": event.payload.get("tool_name")}
        for event in recorded
        if event.type == "tool.call"
    ]
    replies = [event.seq for event in recorded if event.type == "agent.reply"]
    made = not replies and (calls or recorded[0].payload.get("purpose") == "call")
    for event in recorded:
        if event.type == "session.end" and made:
            yield _build_reply(recorded, event, calls, session_id)
        if event.type == "agent.reply":
            listed = calls if event.seq == replies[-1] else []
            yield evolve(event, payload={**event.payload, "tool_calls": listed})
        else:
            yield event


def _build_reply(recorded: list[Event], end: Event, calls: list[dict[str, Any]], session_id: str) -> Event:
    """Return a reply for a session without one: the outcome of the first call."""
    span = sha256(f"deedbook-export-reply\n{session_id}".encode()).hexdigest()[:16]
    payload = {"reply": _find_answer(recorded), "tool_calls": calls}
    return Event(end.seq, "agent.reply", "agent", None, span, recorded[0].span, end.ts, payload)


def _find_answer(recorded: list[Event]) -> str:
    first = next((event for event in recorded if event.type in ("tool.call", "tool.denied")), None)
    if first is None:
        return ""
    if first.type == "tool.denied":
        return f"{first.payload.get('code')}: {first.payload.get('reason')}"
    outcome = next(event for event in recorded if event.parent == first.span and event.type in OUTCOMES["tool.call"])
    if outcome.type == "tool.error":
        return f"{outcome.payload.get('code')}: {outcome.payload.get('message')}"
    result = outcome.payload.get("result")
    return result if isinstance(result, str) else encode(result).decode()


def _encode_line(event: Event, session_id: str, trace_id: str, run: str | None) -> bytes:
    causal = {"_actor": event.actor, "_span_id": event.span, "_source": SOURCE}
    if event.parent:
        causal["_parent_span_id"] = event.parent
    payload = {**({"run_id": run} if run else {}), **event.payload, **causal}
    return spell(event.type, payload, session_id=session_id, trace_id=trace_id, ts=event.ts)
