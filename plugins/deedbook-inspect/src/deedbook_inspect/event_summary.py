"""One event in one line for people, safe for a terminal."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from deedbook.contract import Event, Object
from deedbook.format.event_text import describe_reason, show
from deedbook.format.events import EXCISED_KEY
from deedbook.format.families import NOTHING_DECLARED, DeclaredTypes
from deedbook.format.terminal import plain, short

WIDTH: Final = 200
_MEMBER: Final = re.compile(r"\{([^{}]*)\}")
BRIEF: Final = 80
"""Characters of a denied call's arguments; the reason follows them."""


def summary(event: Event, declared: DeclaredTypes = NOTHING_DECLARED) -> str:
    """Return *event* in one plain line without its type; long data is truncated.

    *declared* has the event types of plugins, which provide their own text.
    """
    if EXCISED_KEY in event.payload:
        return "[taken out of the ledger]"
    say = _SAY.get(event.type) or _from_template(declared.text(event.type))
    return plain(short(say(event.payload), WIDTH))


def _from_template(text: str) -> Callable[[Object], str]:
    """Return a function that formats a payload by *text*, in which names of members are in braces."""
    if not text:
        return lambda payload: show(dict(payload))
    return lambda payload: _MEMBER.sub(lambda match: show(payload.get(match[1], "")), text)


def _text(member: str) -> Callable[[Object], str]:
    return lambda payload: show(payload.get(member, ""))


def _transition(payload: Object) -> str:
    return f"{show(payload.get('from') or 'nobody')} → {show(payload.get('to'))}"


def _intent(name: str, data: str) -> Callable[[Object], str]:
    return lambda payload: f"{show(payload.get(name))} {_arguments(payload.get(data))}"


def _arguments(args: Any) -> str:
    """Return arguments as text; for an undeclared tool, its name comes first."""
    if isinstance(args, dict) and args.keys() == {"tool", "input"}:
        return show({"tool": args["tool"], "input": args["input"]})
    return show(args)


def _outcome(name: str, data: str) -> Callable[[Object], str]:
    return lambda payload: _came_back(
        f"{show(payload.get(name))}{' (late)' if payload.get('late') else ''}", data, _answer(payload, data)
    )


def _came_back(who: str, data: str, answer: str) -> str:
    """Return an answer and its source; a model that only requests tools has no text."""
    return f"{who} {answer}" if data == "response" and answer.startswith("→ ") else f"{who} = {answer}"


def _answer(payload: Object, data: str) -> str:
    """Return an answer as text; of a model's answer its text and the requested tools."""
    value = payload.get(data)
    if not isinstance(value, dict) or "text" not in value or data != "response":
        return show(value)
    calls = value.get("tool_calls")
    names = [show(call.get("name")) for call in _objects(calls)]
    said = show(value["text"])
    return " ".join(part for part in (said, f"→ {', '.join(names)}" if names else "") if part)


def _error(name: str) -> Callable[[Object], str]:
    return lambda payload: (
        f"{show(payload.get(name))}: {show(payload.get('code'))}: {show(payload.get('message'))}"
        f" ({show(payload.get('outcome'))})"
    )


def _describe_denial(payload: Object) -> str:
    by = payload.get("by")
    who = ", ".join(f"{key} {show(value)}" for key, value in by.items()) if isinstance(by, dict) else ""
    with_what = f" {short(_arguments(payload['args']), BRIEF)}" if payload.get("args") else ""
    said = f"{show(payload.get('name'))}{with_what}: {show(payload.get('code'))}: {show(payload.get('reason'))}"
    return f"{said} ({who})" if who else said


def _describe_hook(payload: Object) -> str:
    about = " ".join(show(payload[key]) for key in ("event", "ability") if key in payload)
    if payload.get("event") == "Stop" and payload.get("decision") == "deny":
        return f"{about}: the loop ends here{_answers(payload, 'hook', {'deny': 'stops here'})}"
    return f"{about}: {_describe_decision(payload, 'hook')}"


def _describe_check(payload: Object) -> str:
    """Return the answers of policies about a call, or about a subject (version 2)."""
    subject = payload.get("subject")
    if not isinstance(subject, dict):
        return f"{show(payload.get('ability'))}: {_describe_decision(payload, 'policy')}"
    about = f"{show(subject.get('name', subject))} {short(show(subject.get('value', '')), BRIEF)}"
    return f"{about.strip()}: {_describe_decision(payload, 'policy')}"


def _describe_decision(payload: Object, who: str) -> str:
    return show(payload.get("decision")) + _answers(payload, who, {})


def _answers(payload: Object, who: str, words: Mapping[str, str]) -> str:
    """Return the gates and their answers, with other *words* where a decision has another meaning."""
    answers = [_describe_answer(each, who, words) for each in _objects(payload.get("asked"))]
    return f" [{', '.join(answers)}]" if answers else ""


def _describe_answer(answer: Object, who: str, words: Mapping[str, str]) -> str:
    reason = answer.get("reason")
    decision = show(answer.get("decision"))
    said = f"{show(answer.get(who))} {words.get(decision, decision)}"
    return f"{said} ({show(reason)})" if reason else said


def _describe_violation(payload: Object) -> str:
    faults = [f"{show(each.get('path'))} {show(each.get('message'))}" for each in _objects(payload.get("errors"))]
    return f"{show(payload.get('subject'))} of {show(payload.get('name'))}: {'; '.join(faults)}"


def _describe_report(payload: Object) -> str:
    """Return the text of a report, or where it stands (version 2)."""
    if payload.get("schema_version") == "v2":
        return f"the report of span {show(payload.get('report'))}"
    return show(dict(payload))


def _describe_request(payload: Object) -> str:
    return f"{show(payload.get('name'))}: {describe_reason(payload)} ({show(payload.get('approval'))[:8]})"


def _describe_grant(word: str) -> Callable[[Object], str]:
    return lambda payload: f"{show(payload.get('approval'))[:8]} {word} by {show(payload.get('approver'))}"


def _ruled_on(payload: Object) -> str:
    return _describe_grant("approved" if payload.get("answer") == "approve" else "denied")(payload)


def _request(member: str, words: str) -> Callable[[Object], str]:
    return lambda payload: f"{show(payload.get('approval'))[:8]} {words} {show(payload.get(member))}"


def _bridge_session(payload: Object) -> str:
    before = f", continues {show(payload['continues'])}" if "continues" in payload else ""
    return f"{show(payload.get('agent'))} {show(payload.get('agent_session'))}{before}"


def _bridge_input(payload: Object) -> str:
    denied = f"; denied: {show(payload['denied'])}" if "denied" in payload else ""
    return f"{show(payload.get('agent'))}: {_intent('event', 'said')(payload)}{denied}"


def _elsewhere(word: str) -> Callable[[Object], str]:
    return lambda payload: f"{word} event {show(payload.get('seq'))} of session {show(payload.get('session'))}"


def _task(*members: str, word: str = "") -> Callable[[Object], str]:
    def say(payload: Object) -> str:
        told = [show(payload[name]) for name in members if payload.get(name, "") != ""]
        return " ".join([show(payload.get("task"))[:10], *([word] if word else []), *told])

    return say


def _refused_task(payload: Object) -> str:
    return f"{show(payload.get('ability'))}: {show(payload.get('code'))}: {show(payload.get('reason'))}"


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; a sealed list has none to show."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _session_start(payload: Object) -> str:
    if "charter" not in payload:
        return _older(payload)
    principal = payload.get("principal")
    who = show(principal.get("id")) if isinstance(principal, dict) and "id" in principal else show(principal)
    charter = show(payload.get("charter"))[:12]
    return f"{show(payload.get('purpose'))} for {who}, {show(payload.get('enforcement'))}, charter {charter}"


def _older(payload: Object) -> str:
    """Return the text of an event of an older form."""
    said = next((payload[name] for name in ("prompt", "message", "reason") if name in payload), None)
    return show(dict(payload)) if said is None else show(said)


def _describe_end(payload: Object) -> str:
    if "ok" not in payload:
        return _older(payload)
    how = "ok" if payload.get("ok") is True else "not ok"
    return f"{how}: {show(payload['reason'])}" if "reason" in payload else how


def _describe_action(payload: Object) -> str:
    why = f": {show(payload['code'])}: {show(payload.get('message', ''))}" if "code" in payload else ""
    return f"{show(payload.get('id'))} {show(payload.get('status'))}{why}"


def _describe_amendment(payload: Object) -> str:
    said = [
        f"{show(each.get('at'))} = {show(each['value'])}" if "value" in each else f"{show(each.get('at'))} is not said"
        for each in _objects(payload.get("patch"))
    ]
    what = "; ".join(said) or "as it was recorded"
    return f"event {show(payload.get('seq'))} is said otherwise: {what} ({_why(payload)})"


def _why(payload: Object) -> str:
    return f"by {show(payload.get('by'))}: {show(payload.get('reason'))}"


def _describe_erasure(payload: Object) -> str:
    digests = payload.get("digests")
    count = len(digests) if isinstance(digests, list) else "some"
    return f"what event {show(payload.get('seq'))} has sealed: {count} ({_why(payload)})"


def _describe_excision(payload: Object) -> str:
    return f"the payload of event {show(payload.get('seq'))}, {show(payload.get('size'))} bytes ({_why(payload)})"


def _imported_ledger(payload: Object) -> str:
    sessions = payload.get("sessions")
    count = f", {len(sessions)} sessions" if isinstance(sessions, list) else ""
    return f"{show(payload.get('from'))}, {show(payload.get('format'))}{count}, {show(payload.get('verdict'))}"


def _received_session(payload: Object) -> str:
    session, events, by = (show(payload.get(name)) for name in ("session_id", "events", "by"))
    return f"session {session}, {events} events, by {by}"


def _describe_completion(payload: Object) -> str:
    return f"{show(payload.get('skill'))} {_describe_end(payload)}"


def _memory(why: str) -> Callable[[Object], str]:
    """Return a function that formats a key and its version, with the member *why*."""

    def tell_entry(payload: Object) -> str:
        name = "/".join(show(payload.get(part)) for part in ("zone", "key"))
        return f"{name} version {show(payload.get('version'))}: {show(payload.get(why))}"

    return tell_entry


_SAY: Final[Mapping[str, Callable[[Object], str]]] = MappingProxyType(
    {
        "session.start": _session_start,
        "session.end": _describe_end,
        "session.linked": _text("traceparent"),
        "session.suspended": lambda payload: f"{show(payload.get('code'))}: {show(payload.get('reason'))}",
        "session.resumed": lambda payload: f"charter {show(payload.get('charter'))[:12]}",
        "user.message": _text("text"),
        "agent.reply": _text("reply"),
        "agent.transition": _transition,
        "worker.report": _text("output"),
        "context.verifying": _describe_report,
        "run.value": _intent("kind", "value"),
        "run.branch": _text("name"),
        "tool.call": _intent("tool_name", "args"),
        "tool.result": _outcome("tool_name", "result"),
        "tool.error": _error("tool_name"),
        "tool.denied": _describe_denial,
        "llm.request": _text("ability"),
        "llm.response": _outcome("ability", "response"),
        "llm.error": _error("ability"),
        "flow.call": _intent("flow", "args"),
        "flow.result": _outcome("flow", "result"),
        "flow.error": _error("flow"),
        "memory.call": _intent("ability", "args"),
        "memory.result": _outcome("ability", "result"),
        "memory.error": _error("ability"),
        "memory.proposed": _intent("proposal", "entry"),
        "memory.checked": lambda payload: f"{show(payload.get('proposal'))} ok={show(payload.get('ok'))}",
        "memory.committed": _memory("proposal"),
        "memory.refused": lambda payload: f"{_intent('proposal', 'code')(payload)}: {show(payload.get('reason'))}",
        "memory.retracted": _memory("reason"),
        "memory.imported": _intent("pointer", "entry"),
        "persona.bound": lambda payload: f"{show(payload.get('persona'))} version {show(payload.get('version'))}",
        "hook.fired": _describe_hook,
        "policy.check": _describe_check,
        "schema.violation": _describe_violation,
        "skill.invoke": _text("skill"),
        "skill.complete": _describe_completion,
        "action.received": lambda payload: f"{show(payload.get('action'))} {show(payload.get('id'))}",
        "action.started": lambda payload: f"{show(payload.get('id'))} in session {show(payload.get('session'))}",
        "action.done": _describe_action,
        "action.refused": lambda payload: f"{show(payload.get('code'))}: {show(payload.get('message'))}",
        "approval.requested": _describe_request,
        "approval.granted": _describe_grant("approved"),
        "approval.refused": _describe_grant("refused"),
        "approval.expired": _request("expires", "expired at"),
        "approval.withdrawn": _request("reason", "withdrawn:"),
        "approval.resumed": _request("session", "of session"),
        "approval.answered": _ruled_on,
        "approval.used": _request("session", "used by session"),
        "approval.deferred": lambda payload: (
            f"{show(payload.get('name'))}: {show(payload.get('reason'))}; the agent asks"
        ),
        "approval.served": lambda payload: (
            f"a person approved it: event {show(payload.get('seq'))} of session {show(payload.get('session'))}"
        ),
        "bridge.session": _bridge_session,
        "bridge.told": _bridge_input,
        "bridge.undelivered": lambda payload: (
            f"{show(payload.get('agent'))} {show(payload.get('event'))}: not told: {show(payload.get('what'))}: "
            f"{show(payload.get('why'))}"
        ),
        "bridge.refused": lambda payload: f"{_intent('agent', 'event')(payload)}: {show(payload.get('reason'))}",
        "tool.unasked": lambda payload: f"{_intent('tool_name', 'args')(payload)}: {show(payload.get('why'))}",
        "session.forked": _elsewhere("from"),
        "call.served": _elsewhere("by"),
        "call.settled": lambda payload: (
            f"{show(payload.get('approver'))} gave the result of {show(payload.get('ability'))}"
        ),
        "call.diverged": lambda payload: f"{show(payload.get('code'))}: {show(payload.get('why'))}",
        "task.created": _task("ability", "args"),
        "task.updated": _task("args"),
        "task.denied": _refused_task,
        "task.started": _task("run", word="run"),
        "task.ended": _task("state", "code", "message", "result"),
        "task.decided": _task("answer", "by", "note"),
        "task.deleted": _task(),
        "event.amended": _describe_amendment,
        "payload.erased": _describe_erasure,
        "ledger.excised": _describe_excision,
        "ledger.imported": _imported_ledger,
        "ledger.received": _received_session,
    }
)
