"""A run has one truth, its context: nothing that a flow returns is needed, and no event repeats what another holds.

Every shipped flow that keeps a context runs here with real events.
"""

import itertools
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from remembering import remembering

from deedbook.format.context import ContextFold
from deedbook.format.families import OUTCOMES
from deedbook.format.folds import fold

REPORT = {"output": "all is well here", "steps_completed": ["a"], "tool_calls_made": ["look:1"], "schema_version": "v1"}
PLAN = {
    "steps": [{"id": "a", "description": "look at everything in the house"}],
    "risks": ["it may be dark in the house"],
    "needs_advisor": False,
    "schema_version": "v1",
}
OUTPUT = {
    "clarification": {"intent": "look at everything"},
    "scope": {"constraints": ["be as quick as you can"], "abilities": ["look"]},
    "plan": PLAN,
    "report": REPORT,
    "evidence": [{"criterion": "every test has passed", "passed": True}],
}
PHASES = ("observe", "orient", "decide", "act")
STAGES = ("analyze", "bridge", "validate", "refine", "execute", "review")
FLOWS = {
    "five-point": ({"constraints": ["be as quick as you can"], "work": "work"}, {"prompt": "look at the house"}),
    "ooda": ({name: name for name in (*PHASES, "reflect")}, {"prompt": "mend the roof"}),
    "content-pipeline": ({name: name for name in STAGES}, {"prompt": "write about the house"}),
    "route-verdict": (
        {"propose": "memory/propose"}, {"task_id": "t1", "verdict": "ACCEPT", "content": "the roof of the house is new"}
    ),
}  # fmt: skip


@pytest.fixture
def house(lab):
    """Give a lab with what the shipped flows call, and with a flow that calls the flow *tried* and drops its result."""
    remembering(lab)
    for name in (*PHASES, *STAGES):
        lab.tool(name, lambda args, ctx, name=name: {"text": f"what the tool {name} has made of it"})
    lab.tool("reflect", lambda args, ctx: {"done": True, "lesson": "the ladder was too short"})
    lab.tool("work", lambda args, ctx: OUTPUT)
    lab.skill("try", allows=f"tried memory/propose work reflect {' '.join((*PHASES, *STAGES))}")
    return lab


def play(lab, flow):
    """Run a shipped flow inside another flow; return the live contexts by run, and the session's events."""
    settings, args = FLOWS[flow]
    lab.settings(abilities={"tried": {"summary": "Under test.", "handler": {"flow": flow}, "with": settings}})

    def caller(_, run):
        run.call("tried", args)
        run.answer("the caller has ended")

    lab.flow("caller", caller)
    with lab.session("run") as session:
        reply = session.run("try").value
        runs = [event.span for event in lab.all("flow.call", session)]
        return reply, {run: session.context(run) for run in runs}, lab.events(session)


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", FLOWS)
def test_everything_goes_on_from_the_context_after_every_result_is_deleted(house, flow):
    reply, live, events = play(house, flow)
    assert reply.state == "COMPLETED"
    results = [event for event in events if event.type == "flow.result"]
    assert [(event.payload["result"], event.parent) for event in results] == [
        ({"context": event.parent}, event.parent) for event in results
    ]
    kept = [event for event in events if event.type != "flow.result"]
    contexts = fold(ContextFold(), kept)
    assert dict(contexts.items()) == live
    outer, inner = (contexts[event.span] for event in events if event.type == "flow.call")
    assert (inner.state, inner.parent) == ("COMPLETED", outer.run)
    assert (outer.reply, outer.state) == (reply.text, reply.state)


# --- events -----------------------------------------------------------------------------------------------------------

CALLS = {*OUTCOMES, *(end for ends in OUTCOMES.values() for end in ends), "hook.fired", "policy.check"} - {
    "flow.call", "flow.result", "flow.error"
}  # fmt: skip
"""What was asked of tools, models, hooks and policies, and what they answered: evidence, and no state of a run."""
BOTH = {
    ("user.message", "flow.call"): "the prompt is the argument of the flow",
    ("user.message", "context.created"): "and the task of the run",
    ("flow.call", "context.created"): "the arguments of the call are the task of the run",
    ("worker.report", "agent.reply"): "the reply tells the person what the report holds",
}
"""The pairs of events that state the same by their nature, with the reason."""
MADE_OF = {
    "ooda": {("context.noted", "worker.report")},
    "content-pipeline": {
        *(("context.noted", each) for each in ("context.clarified", "context.scoped", "worker.report")),
        *((each, "context.clarified") for each in ("flow.call", "context.created")),
    },
    "five-point": set(),
    "route-verdict": set(),
    "review": {(each, "context.clarified") for each in ("user.message", "flow.call", "context.created")},
}
"""What else two events of a flow hold: artifacts are made of notes of stages; a clarification takes the prompt over."""


def dual_writes(events):
    """Return the pairs of types of events that hold the same value of substance, each with the first such value."""
    spans = {f'"{event.span}"' for event in events}
    holders = defaultdict(list)
    for event in events:
        if event.type not in CALLS:
            for value in set(values_in(event.payload)) - spans:
                holders[value].append(event)
    pairs = {}
    for value, found in holders.items():
        for one, other in itertools.combinations(found, 2):
            if one.type != other.type or one.parent == other.parent:
                pairs.setdefault((one.type, other.type), value)
    return pairs


def values_in(value):
    """Yield the values of substance: objects, lists and texts that nobody writes twice by chance."""
    members = value.values() if isinstance(value, dict) else value
    for each in members if isinstance(value, dict | list) else ():
        yield from values_in(each)
    made = json.dumps(value, sort_keys=True)
    if isinstance(value, dict | list | str) and len(made) > 17:
        yield made


@pytest.mark.parametrize("flow", MADE_OF)
def test_no_event_of_a_shipped_flow_repeats_what_another_holds(request, flow):
    if flow == "review":
        place = request.getfixturevalue("told")
        events = next(found for each in place.sessions() if len(found := place.events(each)) > 20)
    else:
        _, _, events = play(request.getfixturevalue("house"), flow)
    found = {pair: value for pair, value in dual_writes(events).items() if pair not in BOTH}
    assert found.keys() == MADE_OF[flow], found


def test_value_in_two_events_is_found(house):
    """The scan is worth something: a flow that notes its report is found."""
    house.flow("noting", lambda args, run: run.context.note("report", REPORT) or run.answer(REPORT["output"]))
    house.skill("note", allows="noting")
    house.settings(profile="lab", profiles={"lab": {"flow": "noting"}})
    with house.session("run") as session:
        session.run("note")
    assert ("context.noted", "worker.report") in dual_writes(house.events(session))


def test_page_names_tests_that_exist():
    root = Path(__file__).parents[1]
    named = set(re.findall(r"`(test_\w+)`", (root / "docs/one-truth.md").read_text(encoding="utf-8")))
    folders = (root / "tests", *root.glob("plugins/*/tests"), root / "plugins/deedbook-testing/src")
    sources = [path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")]
    defined = {name for source in sources for name in re.findall(r"^ *def (test_\w+)", source, re.MULTILINE)}
    assert len(named) > 20
    assert named <= defined
