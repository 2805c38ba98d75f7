"""The requests to a session, from its ledger: prompts that were run or submitted, and calls, in their order."""

from collections.abc import Iterator
from typing import Any, Literal

import attrs

from deedbook.continuation.parent import ParentSession, ValueMissing
from deedbook.continuation.requests import args_member
from deedbook.contract import Event
from deedbook.format.families import OUTCOMES
from deedbook.format.folds import NAMED_BY


@attrs.frozen
class Task:
    """One request at the event *seq*: a prompt that was ``run`` or ``submit``-ted (*text*), or a call.

    *flow* is the ability that a prompt was for, if it did not go to the profile's own. *why* is the reason if it
    cannot be repeated.
    """

    seq: int
    kind: Literal["run", "submit", "call"]
    text: str = ""
    ability: str = ""
    args: Any = None
    why: str = ""
    flow: str | None = None


def list_work(parent: ParentSession) -> Iterator[Task]:
    """Yield the requests to *parent*, without what a run or a call did itself."""
    run = {event.parent for event in parent.events if event.type == "skill.invoke"}
    if parent.events[0].payload.get("purpose") == "run":
        run |= {event.parent for event in parent.events if event.type == "flow.call"}
    inside: set[str | None] = set()
    for event in parent.events:
        if event.parent in inside:
            inside.add(event.span)
        elif event.type == "user.message":
            yield _prompt(parent, event, "run" if event.span in run else "submit")
            inside |= {event.span} & run
        elif event.type in OUTCOMES or event.type == "tool.denied":
            inside.add(event.span)
            yield _call(parent, event)


def _prompt(parent: ParentSession, event: Event, kind: Literal["run", "submit"]) -> Task:
    try:
        text = parent.open_value(event.payload.get("text"))
    except ValueMissing as problem:
        return Task(event.seq, kind, why=f"the prompt is not there any more ({problem})")
    if not isinstance(text, str):
        return Task(event.seq, kind, why="the prompt was taken out")
    flow = event.payload.get("flow")
    return Task(event.seq, kind, text=text, flow=None if flow is None else str(flow))


def _call(parent: ParentSession, event: Event) -> Task:
    family = event.type.partition(".")[0]
    denied = event.type == "tool.denied"
    name = event.payload.get("name" if denied else NAMED_BY.get(family, "tool_name"))
    member = "args" if denied else args_member(event.type)
    if not isinstance(name, str) or member not in event.payload:
        return Task(event.seq, "call", ability=str(name), why="its arguments are not recorded")
    try:
        return Task(event.seq, "call", ability=name, args=parent.open_value(event.payload[member]))
    except ValueMissing as problem:
        return Task(event.seq, "call", ability=name, why=f"its arguments are not there any more ({problem})")
