"""Calls on a page: who was asked and decided, where the rule stands, what went in, what came back."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook.contract import Event
from deedbook.format.event_text import show

from .account import Use
from .markup import chip, tag, text
from .payloads import Payloads, is_sealed

_LOOKS: Final = {"result": "good", "denied": "bad", "unknown": "odd"}
_WORDS: Final = {
    "approval.requested": "a person was asked",
    "approval.granted": "approved",
    "approval.refused": "refused",
}


def decided(use: Use) -> tuple[int, tuple[str, ...]]:
    """Return a row of the table of decisions: the event, the ability, the decision, and who decided."""
    refused = use.intent is None
    who = list(_deciders(use)) or ["no hook and no policy was asked: scope and schema let it pass"]
    cell = chip("denied", "bad") if refused else chip("allowed", "good")
    event = use.first
    return event.seq, (f'<a href="#e{event.seq}">{event.seq}</a>', text(use.name), cell, "<br>".join(who))


def told(event: Event) -> str:
    """Return who was asked in one round of hooks or policies and what each answered, with the place of its rule."""
    asked = event.payload.get("asked")
    if not isinstance(asked, list):
        return text(show(asked))
    return "<br>".join(_answer(each) for each in asked if isinstance(each, dict))


def _deciders(use: Use) -> Iterator[str]:
    if use.intent is None and use.ended is not None:
        said = use.ended.payload
        yield f"<b>{text(show(said.get('code')))}</b> {text(show(said.get('reason')))}{_by(said.get('by'))}"
    for event in use.asked:
        if event.type.startswith("approval."):
            yield text(_person(event))
        elif event.type == "schema.violation":
            yield text(f"schema: {show(event.payload.get('errors'))}")
        else:
            yield told(event) + _observed(event)


def _answer(said: Mapping[str, Any]) -> str:
    who = next((f"{kind} {show(said[kind])}" for kind in ("hook", "policy") if kind in said), "somebody")
    reason = f": {show(said['reason'])}" if said.get("reason") else ""
    rule = f" {tag('code', text(show(said['rule'])))}" if said.get("rule") not in (None, "") else ""
    return text(f"{who} answered {show(said.get('decision'))}{reason}") + rule


def _by(by: Any) -> str:
    if not isinstance(by, dict):
        return ""
    who = next((f"{kind} {show(by[kind])}" for kind in ("hook", "policy", "skill", "scope") if kind in by), "a rule")
    place = by.get("rule", by.get("place"))
    where = "" if place in (None, "") else f" {tag('code', text(show(place)))}"
    return f" — decided by {text(who)}{where}"


def _observed(event: Event) -> str:
    return " (observed only, not binding)" if event.payload.get("enforcement") == "observe" else ""


def _person(event: Event) -> str:
    said = event.payload
    word = _WORDS.get(event.type, event.type.removeprefix("approval."))
    who = f" by {show(said['approver'])}" if "approver" in said else ""
    why = f": {show(said['reason'])}" if said.get("reason") else ""
    return f"{word}{who}{why} (request {show(said.get('approval'))[:8]})"


def entry(use: Use, payloads: Payloads) -> str:
    """Return one call, folded: what went in, who decided, what came back."""
    event = use.first
    took = "" if use.milliseconds is None else f" in {use.milliseconds} ms"
    word = "outcome unknown" if use.outcome == "unknown" else use.outcome
    served = "".join(chip("served again, not run", "odd") for each in use.after if each.type == "call.served")
    late = chip("late", "odd") if use.gave and use.ended is not None and use.ended.payload.get("late") else ""
    line = f"{chip(use.kind)} <b>{text(use.name)}</b> {chip(word, _LOOKS.get(use.outcome, 'bad'))}{late}{served}"
    parts = [
        f'<p class="note">{text(event.ts)}{took}, <a href="#e{event.seq}">event {event.seq}</a></p>',
        *_went_in(use, payloads),
        _labelled("Who decided", tag("p", decided(use)[1][3])),
        *_came_back(use, payloads),
    ]
    return f"<details><summary>{'· ' * min(use.depth, 8)}{line}</summary>{''.join(parts)}</details>"


def _went_in(use: Use, payloads: Payloads) -> Iterator[str]:
    """Yield the arguments; of a request to a model its messages as they were written, and then the rest."""
    messages = use.args.get("messages") if isinstance(use.args, dict) else None
    if use.kind != "model" or not isinstance(messages, list):
        yield _labelled("Arguments", payloads.shown(use.args))
        return
    for message in messages:
        said = message if isinstance(message, dict) and not is_sealed(message) else {"content": message}
        yield _labelled(show(said.get("role", "message")), payloads.shown(said.get("content")))
        if said.get("tool_calls"):
            yield _labelled("tool calls", payloads.shown(said["tool_calls"]))
    yield _labelled("The rest of the request", payloads.shown({k: v for k, v in use.args.items() if k != "messages"}))


def _came_back(use: Use, payloads: Payloads) -> Iterator[str]:
    if use.intent is None:
        return
    if use.ended is None:
        yield tag("p", "No outcome was recorded: nobody knows whether it happened.", class_="odd")
        return
    yield _labelled("Result" if use.gave else "Error", payloads.shown(use.result))
    for event in use.after:
        yield _labelled(event.type, payloads.shown(dict(event.payload)))


def _labelled(name: str, content: str) -> str:
    return f'<p class="note">{text(name)}</p>{content}'
