"""Seed 000's audit completeness: a check of a ledger for everything that an audit would want of a run."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from commandline import Place, ask, play, report, run_of, verdict

from deedbook.contract import Event
from deedbook.format.families import OUTCOMES, RUN_ENDS

WANTED = [
    "session.start", "hook.fired", "skill.invoke", "agent.transition", "llm.request", "llm.response", "tool.call",
    "tool.result", "worker.report", "skill.complete", "session.end",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(told: Place) -> list[Event]:
    """Give the events of one successful run."""
    return run_of(told)


def missing(events: Iterable[Event]) -> Iterator[str]:
    """Yield what a complete audit of a successful run would want and *events* do not hold."""
    told = list(events)
    types = [event.type for event in told]
    yield from (f"no {wanted}" for wanted in WANTED if wanted not in types)
    yield from unanswered(told)
    yield from unhanded(told)
    yield from undecided(told)
    malformed = [
        event for event in told if event.payload.get("code") in ("MALFORMED_AGENT_MESSAGE", "SCHEMA_VIOLATION")
    ]
    if malformed and "schema.violation" not in types:
        yield "a violation that is not recorded"
    if types.count("session.end") != 1 or told[-1].type != "session.end":
        yield "no close at the end"


def unanswered(told: list[Event]) -> Iterator[str]:
    """Yield every request and every call without exactly one outcome, and every outcome of nothing."""
    spans = {event.span for event in told}
    for event in told:
        if event.type in OUTCOMES:
            outcomes = [other for other in told if other.parent == event.span and other.type in OUTCOMES[event.type]]
            if len(outcomes) != 1:
                yield f"{event.type} with {len(outcomes)} outcomes"
        elif event.parent is not None and event.parent not in spans:
            yield f"{event.type} without what caused it"


def unhanded(told: list[Event]) -> Iterator[str]:
    """Yield every request to a model that no hand-over to a role precedes, and every gap between hand-overs."""
    spans = {event.span: event for event in told}
    for event in told:
        if event.type == "llm.request" and getattr(spans.get(event.parent), "type", None) != "agent.transition":
            yield "a request of nobody"
    moves = [event.payload for event in told if event.type == "agent.transition"]
    if any(before["to"] != after["from"] for before, after in pairwise(moves)):
        yield "a transition is missing"
    if moves and moves[-1]["to"] not in RUN_ENDS:
        yield "the last transition is missing"


def undecided(told: list[Event]) -> Iterator[str]:
    """Yield every call of a tool whose hooks are not recorded, each with its decision."""
    for call in (event for event in told if event.type == "tool.call"):
        fired = [e for e in told if e.type == "hook.fired" and e.parent == call.parent and e.seq < call.seq]
        names = [event.payload.get("ability") for event in fired]
        if call.payload["tool_name"] not in names:
            yield f"no hook was asked about {call.payload['tool_name']}"
    for event in told:
        if event.type == "hook.fired" and not all("decision" in asked for asked in event.payload["asked"]):
            yield "a hook without its decision"


def test_audit_of_a_successful_run_is_complete(run):
    assert list(missing(run)) == []


def test_audit_of_a_survey_of_many_calls_is_complete(place: Place):
    place.write("docs/a.md", "alpha\n")
    ran = place.here("run", "Survey docs/*.md", status=0)
    assert list(missing(place.events(ran.session))) == []


def test_audit_of_a_run_with_rework_is_complete(place: Place):
    entries = [ask("worker", "echo", {"text": "hi"}), report("no"), verdict("fail", "greet her"),
               ask("worker", "echo", {"text": "Hello, Ada!"}), report("Hello, Ada!"), verdict("pass")]  # fmt: skip
    play(place, entries)
    ran = place.here("run", "--profile", "played", "Say hello to Ada", status=0)
    assert list(missing(place.events(ran.session))) == []


@pytest.mark.parametrize("wanted", WANTED)
def test_audit_fails_where_anything_is_left_out(run, wanted: str):
    assert list(missing([event for event in run if event.type != wanted]))


def test_audit_fails_where_one_of_several_is_left_out(run):
    for event in run:
        if event.type in ("llm.request", "llm.response", "agent.transition", "tool.result"):
            assert list(missing([other for other in run if other is not event])), event
