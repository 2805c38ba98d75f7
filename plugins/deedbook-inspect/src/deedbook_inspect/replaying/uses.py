"""Calls on a page: the gates and their decisions, the place of the rule, arguments and results."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook.contract import Event
from deedbook.format.event_text import describe_reason, show

from .account import Use
from .payloads import Payload, PayloadCutter, is_sealed

_STYLES: Final = {"result": "good", "denied": "bad", "unknown": "odd"}
_WORDS: Final = {
    "approval.requested": "a person was asked",
    "approval.granted": "approved",
    "approval.refused": "refused",
}
_NOBODY: Final = "no hook and no policy was asked: scope and schema let it pass"
_OBSERVED: Final = "(observed only, not binding)"

_Labelled = tuple[str, Payload]


@attrs.frozen
class Statement:
    """The answer of one hook, policy or person: a *code*, a *text*, the *place* of the rule, and a *note*."""

    text: str
    code: str = ""
    place: str = ""
    note: str = ""


@attrs.frozen
class DecisionRow:
    """A row of the table of decisions; *word* is the decision and *style* how it is shown."""

    seq: int
    about: str
    word: str
    style: str
    statements: tuple[Statement, ...]


@attrs.frozen
class Call:
    """One call as it is shown: its arguments, its deciders, its results. *is_open*: no outcome was recorded."""

    seq: int
    ts: str
    took: str
    depth: int
    kind: str
    name: str
    word: str
    style: str
    remarks: tuple[str, ...]
    arguments: tuple[_Labelled, ...]
    statements: tuple[Statement, ...]
    results: tuple[_Labelled, ...]
    is_open: bool


def build_decision(use: Use) -> DecisionRow:
    """Return the row of a call, or of an attempt at one."""
    word, style = ("denied", "bad") if use.intent is None else ("allowed", "good")
    return DecisionRow(use.first.seq, use.name, word, style, _list_deciders(use))


def build_round(event: Event) -> DecisionRow:
    """Return the row of a life-cycle event that hooks were asked about, or of a subject of a policy."""
    word = show(event.payload.get("decision"))
    style = "good" if word == "allow" else "odd"
    subject = event.payload.get("subject")
    name = show(subject.get("name", subject) if isinstance(subject, dict) else event.payload.get("event"))
    return DecisionRow(event.seq, name, word, style, tuple(_list_gate_answers(event)))


def build_call(use: Use, cutter: PayloadCutter) -> Call:
    """Return one call with its values, which *cutter* cuts."""
    end, is_late = use.end, use.has_result and use.end is not None and bool(use.end.payload.get("late"))
    return Call(
        seq=use.first.seq,
        ts=use.first.ts,
        took="" if use.milliseconds is None else f" in {use.milliseconds} ms",
        depth=min(use.depth, 8),
        kind=use.kind,
        name=use.name,
        word="outcome unknown" if use.outcome == "unknown" else use.outcome,
        style=_STYLES.get(use.outcome, "bad"),
        remarks=(
            *(["late"] if is_late else []),
            *("served again, not run" for each in use.after if each.type == "call.served"),
        ),
        arguments=tuple(_list_arguments(use, cutter)),
        statements=_list_deciders(use),
        results=tuple(_list_results(use, cutter)),
        is_open=end is None,
    )


# --- deciders --------------------------------------------------------------------------------------------------------


def _list_deciders(use: Use) -> tuple[Statement, ...]:
    """Return the deciders of a call; a denial comes first."""
    denials = [_build_denial(use.end.payload)] if use.intent is None and use.end is not None else []
    answers = [statement for event in use.gate_events for statement in _list_gate_answers(event)]
    return (*denials, *answers) or (Statement(_NOBODY),)


def _build_denial(payload: Mapping[str, Any]) -> Statement:
    reason, code, by = show(payload.get("reason")), show(payload.get("code")), payload.get("by")
    if not isinstance(by, dict):
        return Statement(reason, code)
    who = next(
        (f"{kind} {show(by[kind])}" for kind in ("hook", "policy", "skill", "scope", "feature") if kind in by), "a rule"
    )
    return Statement(f"{reason} — decided by {who}", code, _format_place(by.get("rule", by.get("place"))))


def _list_gate_answers(event: Event) -> list[Statement]:
    if event.type.startswith("approval."):
        return [Statement(_format_person(event))]
    if event.type == "schema.violation":
        return [Statement(f"schema: {show(event.payload.get('errors'))}")]
    answers = list(_list_answers(event))
    if answers and event.payload.get("enforcement") == "observe":
        answers[-1] = attrs.evolve(answers[-1], note=_OBSERVED)
    return answers


def _list_answers(event: Event) -> Iterator[Statement]:
    """Yield the answers of one round of hooks or policies, with the place of each rule."""
    asked = event.payload.get("asked")
    if not isinstance(asked, list):
        yield Statement(show(asked))
        return
    for each in asked:
        if isinstance(each, dict):
            who = next((f"{kind} {show(each[kind])}" for kind in ("hook", "policy") if kind in each), "a gate")
            reason = f": {show(each['reason'])}" if each.get("reason") else ""
            text = f"{who} answered {show(each.get('decision'))}{reason}"
            yield Statement(text, place=_format_place(each.get("rule")))


def _format_place(place: Any) -> str:
    return "" if place in (None, "") else show(place)


def _format_person(event: Event) -> str:
    payload = event.payload
    if event.type == "approval.served":
        return f"approved in session {show(payload.get('session'))}, event {show(payload.get('seq'))}: nothing was done"
    word = _WORDS.get(event.type, event.type.removeprefix("approval."))
    who = f" by {show(payload['approver'])}" if "approver" in payload else ""
    why = f": {describe_reason(payload)}" if payload.get("reason") else ""
    return f"{word}{who}{why} (request {show(payload.get('approval'))[:8]})"


# --- arguments and results -------------------------------------------------------------------------------------------


def _list_arguments(use: Use, cutter: PayloadCutter) -> Iterator[_Labelled]:
    """Yield the arguments; for a request to a model its messages as written, and then the rest."""
    messages = use.args.get("messages") if isinstance(use.args, dict) else None
    if use.kind != "model" or not isinstance(messages, list):
        yield "Arguments", cutter.cut(use.args)
        return
    for message in messages:
        members = message if isinstance(message, dict) and not is_sealed(message) else {"content": message}
        yield show(members.get("role", "message")), cutter.cut(members.get("content"))
        if members.get("tool_calls"):
            yield "tool calls", cutter.cut(members["tool_calls"])
    yield "The rest of the request", cutter.cut({k: v for k, v in use.args.items() if k != "messages"})


def _list_results(use: Use, cutter: PayloadCutter) -> Iterator[_Labelled]:
    if use.intent is None or use.end is None:
        return
    yield "Result" if use.has_result else "Error", cutter.cut(use.result)
    for event in use.after:
        yield event.type, cutter.cut(dict(event.payload))
