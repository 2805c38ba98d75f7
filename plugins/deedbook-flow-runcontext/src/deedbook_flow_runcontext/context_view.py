"""A context for people: its artifacts, its plan with the state of each step, decisions, findings, what it waits for.

Everything here is pure: it is made from the context and the events of its session.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook import Event, Failed, Json, Object
from deedbook.format.context import FINDING, LIVE, RunContext
from deedbook.format.terminal import short
from deedbook_inspect.event_summary import summary

from .execution import NOTE
from .plan_summary import find_groups, plan_summary
from .plans import is_approval, upcast

WIDTH: Final = 160
FINDINGS: Final[Mapping[str, str]] = {
    "message.refused": "reason",
    "review.failed": "feedback",
    "calls.invented": "invented",
}
"""Notes that are findings, and the member that has the text; two of them are in older ledgers only."""

TYPED: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "clarification": (
        "intent",
        {"constraints": "constraint", "assumptions": "assumption", "questions": "question"},
    ),
    "scope": ("skill", {"constraints": "constraint", "includes": "includes", "excludes": "excludes"}),
    "verification": ("verdict", {"checks": "check"}),
}
"""The artifacts with a schema: their main member, and their lists of texts with the title of a row."""

_DECISIONS: Final = ("tool.denied", "approval.requested", "approval.granted", "approval.refused", "approval.expired")


@attrs.frozen(eq=False)
class ContextView:
    """The view of *context* with the *events* of its session."""

    context: RunContext
    events: Sequence[Event]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "context": self.context.as_json(),
            "plan_summary": self._summary(),
            "decisions": [
                {"seq": event.seq, "type": event.type, "text": summary(event)} for event in self._decisions()
            ],
            "findings": list(self._findings()),
            "waits_for": self._waits_for(),
        }

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield rows of a table."""
        context = self.context
        yield "state", context.state + (f", from {context.waiting}" if context.waiting else "")
        yield "task", _show(context.task)
        yield "source", _show(context.source)
        if context.parent:
            yield "called by", f"run {context.parent}"
        yield from dict.fromkeys(self._artifact_rows("clarification", "scope"))  # the scope repeats constraints
        yield from self._plan_rows()
        if context.attempts > 1:
            yield "attempts", str(context.attempts)
        yield from self._artifact_rows("report", "verification")
        yield from self._history_rows()
        waits = self._waits_for()
        if context.reason is not None and waits is None:
            yield "reason", _show(context.reason)
        if waits is not None:
            yield "waits for", _show(waits["reason"])
            if waits["approval"]:
                yield "approval", _show(waits["approval"])

    def _artifact_rows(self, *names: str) -> Iterator[tuple[str, ...]]:
        for name in names:
            artifact = getattr(self.context, name)
            if artifact is None:
                continue
            if name in TYPED and "schema_version" in artifact:
                yield from _typed_rows(name, artifact)
            else:
                yield name, _show(artifact.get("output", artifact) if name == "report" else artifact)

    def _history_rows(self) -> Iterator[tuple[str, ...]]:
        for entry in self.context.log:
            if entry.event_type not in (NOTE, FINDING) and entry.event_type not in FINDINGS:
                yield "note", f"{entry.event_type}: {_show(entry.data)}"
        for event in self._decisions():
            yield "decision", f"event {event.seq} {event.type}: {summary(event)}"
        for finding in self._findings():
            yield "finding", f"{finding['check']}: {_show(finding['message'])}"

    # --- the plan -----------------------------------------------------------------------------------------------------

    def _summary(self) -> dict[str, Any] | None:
        """Return the summary of the plan; ``None`` without a plan of a known form."""
        try:
            return plan_summary(self.context)
        except Failed:
            return None

    def _plan_rows(self) -> Iterator[tuple[str, ...]]:
        plan, told = self.context.plan, self._summary()
        if plan is None:
            return
        if told is None:
            yield "plan", _show(plan)
            return
        plan = upcast(plan)
        for skill in told["skills_included"]:
            yield "included", f"{skill['name']}: {skill['reason']}"
        for skill in told["skills_excluded"]:
            yield "excluded", f"{skill['name']}: {skill['reason']}"
        yield "plan", f"{_count(told['step_count'], 'step')}, {_count(told['tool_count'], 'tool')}"
        steps = {step["id"]: step for step in plan["steps"]}
        states = {
            str(each.data["step"]): str(each.data["state"]) for each in self.context.log if each.event_type == NOTE
        }
        reported = self.context.report or {}
        for member, state in (("steps_completed", "completed"), ("steps_skipped", "skipped")):
            names = reported.get(member, ())
            states = {**{name: state for name in names if isinstance(name, str)}, **states}
        for number, group in enumerate(find_groups(plan), 1):
            for name in group:
                yield f"group {number}", _describe_step(steps[name], states.get(name, "-"))
        policy = told["policy"]
        yield "policy", policy["verdict"] + (f": {policy['reason']}" if policy["reason"] else "")
        if told["halt_steps"]:
            yield "halts at", ", ".join(told["halt_steps"])
        for text in told["optional_warnings"]:
            yield "warning", text

    # --- what happened ------------------------------------------------------------------------------------------------

    def _decisions(self) -> Iterator[Event]:
        """Yield denials, and requests and answers of people, in the run and in what it called."""
        inside = {self.context.run}
        for event in self.events:
            if event.span in inside or event.parent in inside:
                inside.add(event.span)
                if event.type in _DECISIONS:
                    yield event

    def _findings(self) -> Iterator[dict[str, Any]]:
        for entry in self.context.log:
            if entry.event_type == FINDING:
                yield {"check": str(entry.data.get("check")), "message": entry.data.get("message")}
            elif entry.event_type in FINDINGS:
                yield {"check": entry.event_type, "message": entry.data.get(FINDINGS[entry.event_type])}
            found = entry.data.get("findings")
            for finding in found if isinstance(found, list) else ():
                if isinstance(finding, dict):
                    yield {"check": str(finding.get("check")), "message": finding.get("message")}

    def _waits_for(self) -> dict[str, Any] | None:
        """Return the reason and the approval that the run waits for; ``None`` if nothing goes on with it."""
        last = next((event for event in reversed(self.events) if event.type.startswith("session.")), None)
        suspended = last.payload if last is not None and last.type == "session.suspended" else {}
        if self.context.state == "NEEDS_HUMAN" and (last is None or last.type != "session.end"):
            return {"reason": self.context.reason, "approval": suspended.get("approval")}
        if suspended and self.context.state in LIVE:
            return {"reason": f"{suspended.get('reason')}; deedbook resume goes on with it", "approval": None}
        return None


def compare(left: Json, right: Json, pointer: str = "") -> Iterator[dict[str, Any]]:
    """Yield the differences of two JSON values as ``{pointer, left, right}``; a missing value is absent there."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in dict.fromkeys([*left, *right]):
            place = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            yield from _compare_members(left, right, name, place)
    elif isinstance(left, list) and isinstance(right, list):
        members = dict(enumerate(left)), dict(enumerate(right))
        for at in range(max(len(left), len(right))):
            yield from _compare_members(*members, at, f"{pointer}/{at}")
    elif json.dumps(left, sort_keys=True) != json.dumps(right, sort_keys=True):
        yield {"pointer": pointer, "left": left, "right": right}


def _compare_members(
    left: Mapping[Any, Json], right: Mapping[Any, Json], name: Any, place: str
) -> Iterator[dict[str, Any]]:
    if name not in left:
        yield {"pointer": place, "right": right[name]}
    elif name not in right:
        yield {"pointer": place, "left": left[name]}
    else:
        yield from compare(left[name], right[name], place)


def difference_rows(found: Iterable[Object]) -> Iterator[tuple[str, ...]]:
    """Yield rows of a table of differences."""
    for each in found:
        shown = [_show(each[side]) if side in each else "(absent)" for side in ("left", "right")]
        yield each["pointer"] or "(all)", *shown


def _typed_rows(name: str, artifact: Object) -> Iterator[tuple[str, ...]]:
    """Yield rows for an artifact with a schema: its main member, one row for each text of a list, and the others."""
    main, lists = TYPED[name]
    others = {key: value for key, value in artifact.items() if value and key not in (main, *lists, "schema_version")}
    told = [artifact[main]] if main in artifact else []
    told += [others] if others else []
    if told:
        yield name, "; ".join(map(_show, told))
    for member, title in lists.items():
        for text in artifact.get(member) or ():
            yield title, _show(text)


def _describe_step(step: Object, state: str) -> str:
    other = "a person" if is_approval(step) else "worker"
    target = next((f"{kind} {step[kind]}" for kind in ("ability", "skill") if kind in step), other)
    marks = [*step.get("tags", ()), *(mark for mark in ("optional", "halt_on_failure") if step.get(mark))]
    after = f", after {', '.join(step['depends_on'])}" if step.get("depends_on") else ""
    return f"{state:<9}  {step['id']}  ({target}{after}{''.join(f', {mark}' for mark in marks)})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _show(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"prompt"} and isinstance(value["prompt"], str):
        value = value["prompt"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return short(" ".join(text.split()), WIDTH)
