"""Calls on a page: the gates and their decisions, the place of the rule, arguments and results."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook.contract import Event
from deedbook.format.event_text import show

from .account import Use
from .markup import escape_text, render_chip, render_tag
from .payloads import PayloadRenderer, is_sealed

_LOOKS: Final = {"result": "good", "denied": "bad", "unknown": "odd"}
_WORDS: Final = {
    "approval.requested": "a person was asked",
    "approval.granted": "approved",
    "approval.refused": "refused",
}


def build_decision_row(use: Use) -> tuple[int, tuple[str, ...]]:
    """Return a row of the table of decisions: the event, the ability, the decision, and the deciders."""
    refused = use.intent is None
    who = list(_render_deciders(use)) or ["no hook and no policy was asked: scope and schema let it pass"]
    cell = render_chip("denied", "bad") if refused else render_chip("allowed", "good")
    event = use.first
    return event.seq, (f'<a href="#e{event.seq}">{event.seq}</a>', escape_text(use.name), cell, "<br>".join(who))


def render_answers(event: Event) -> str:
    """Return the answers of one round of hooks or policies, with the place of each rule."""
    gate_answers = event.payload.get("asked")
    if not isinstance(gate_answers, list):
        return escape_text(show(gate_answers))
    return "<br>".join(_render_answer(each) for each in gate_answers if isinstance(each, dict))


def _render_deciders(use: Use) -> Iterator[str]:
    if use.intent is None and use.end is not None:
        payload = use.end.payload
        code, reason = (escape_text(show(payload.get(name))) for name in ("code", "reason"))
        yield f"<b>{code}</b> {reason}{_render_decider(payload.get('by'))}"
    for event in use.gate_events:
        if event.type.startswith("approval."):
            yield escape_text(_format_person(event))
        elif event.type == "schema.violation":
            yield escape_text(f"schema: {show(event.payload.get('errors'))}")
        else:
            yield render_answers(event) + _format_observed(event)


def _render_answer(payload: Mapping[str, Any]) -> str:
    who = next((f"{kind} {show(payload[kind])}" for kind in ("hook", "policy") if kind in payload), "somebody")
    reason = f": {show(payload['reason'])}" if payload.get("reason") else ""
    rule = f" {render_tag('code', escape_text(show(payload['rule'])))}" if payload.get("rule") not in (None, "") else ""
    return escape_text(f"{who} answered {show(payload.get('decision'))}{reason}") + rule


def _render_decider(by: Any) -> str:
    if not isinstance(by, dict):
        return ""
    who = next((f"{kind} {show(by[kind])}" for kind in ("hook", "policy", "skill", "scope") if kind in by), "a rule")
    place = by.get("rule", by.get("place"))
    where = "" if place in (None, "") else f" {render_tag('code', escape_text(show(place)))}"
    return f" — decided by {escape_text(who)}{where}"


def _format_observed(event: Event) -> str:
    return " (observed only, not binding)" if event.payload.get("enforcement") == "observe" else ""


def _format_person(event: Event) -> str:
    payload = event.payload
    word = _WORDS.get(event.type, event.type.removeprefix("approval."))
    who = f" by {show(payload['approver'])}" if "approver" in payload else ""
    why = f": {show(payload['reason'])}" if payload.get("reason") else ""
    return f"{word}{who}{why} (request {show(payload.get('approval'))[:8]})"


def render_call(use: Use, payloads: PayloadRenderer) -> str:
    """Return one call, folded: its arguments, its deciders, its outcome."""
    event = use.first
    took = "" if use.milliseconds is None else f" in {use.milliseconds} ms"
    word = "outcome unknown" if use.outcome == "unknown" else use.outcome
    served = "".join(render_chip("served again, not run", "odd") for each in use.after if each.type == "call.served")
    late = render_chip("late", "odd") if use.has_result and use.end is not None and use.end.payload.get("late") else ""
    outcome = render_chip(word, _LOOKS.get(use.outcome, "bad"))
    line = f"{render_chip(use.kind)} <b>{escape_text(use.name)}</b> {outcome}{late}{served}"
    parts = [
        f'<p class="note">{escape_text(event.ts)}{took}, <a href="#e{event.seq}">event {event.seq}</a></p>',
        *_render_args(use, payloads),
        _render_labelled("Who decided", render_tag("p", build_decision_row(use)[1][3])),
        *_render_outcome(use, payloads),
    ]
    return f"<details><summary>{'· ' * min(use.depth, 8)}{line}</summary>{''.join(parts)}</details>"


def _render_args(use: Use, payloads: PayloadRenderer) -> Iterator[str]:
    """Yield the arguments; for a request to a model its messages as written, and then the rest."""
    messages = use.args.get("messages") if isinstance(use.args, dict) else None
    if use.kind != "model" or not isinstance(messages, list):
        yield _render_labelled("Arguments", payloads.render(use.args))
        return
    for message in messages:
        members = message if isinstance(message, dict) and not is_sealed(message) else {"content": message}
        yield _render_labelled(show(members.get("role", "message")), payloads.render(members.get("content")))
        if members.get("tool_calls"):
            yield _render_labelled("tool calls", payloads.render(members["tool_calls"]))
    yield _render_labelled(
        "The rest of the request", payloads.render({k: v for k, v in use.args.items() if k != "messages"})
    )


def _render_outcome(use: Use, payloads: PayloadRenderer) -> Iterator[str]:
    if use.intent is None:
        return
    if use.end is None:
        yield render_tag("p", "No outcome was recorded: nobody knows whether it happened.", class_="odd")
        return
    yield _render_labelled("Result" if use.has_result else "Error", payloads.render(use.result))
    for event in use.after:
        yield _render_labelled(event.type, payloads.render(dict(event.payload)))


def _render_labelled(name: str, content: str) -> str:
    return f'<p class="note">{escape_text(name)}</p>{content}'
