"""Plans of thousands of steps in the flow plan-and-run: the cost grows with the number, and there is a limit."""

import sys
import threading
import tracemalloc

import attrs
import pytest
from test_plan_and_run import configure, notes, planned, plans, run, skill, speak, step

from deedbook.format.context import ContextFold
from deedbook.format.files import Folder
from deedbook.format.folds import fold
from deedbook.format.sealed import open_values
from deedbook_flow_runcontext.context_view import ContextView

__all__ = ["plans"]

SHAPES = {
    "a chain": lambda count: (
        [step("s0", ability="look")]
        + [step(f"s{at}", ability="look", depends_on=[f"s{at - 1}"]) for at in range(1, count)]
    ),
    "side by side": lambda count: [step(f"s{at}", ability="look") for at in range(count)],
    "a tree": lambda count: (
        [step("s0", ability="look")]
        + [step(f"s{at}", ability="look", depends_on=[f"s{(at - 1) // 10}"]) for at in range(1, count)]
    ),
}


def complete(lab, steps):
    """Run a plan with *steps* of a planner, which completes; return the context."""
    speak(lab, planner=[planned(*steps)])
    context = run(lab, "do").value.context
    assert (context.state, len(context.report["steps_completed"])) == ("COMPLETED", len(steps))
    return context


def count_calls(work):
    """Return how many Python functions are called during *work*, in all threads."""
    found = [0]

    def count(_frame, event, _arg):
        found[0] += event == "call"

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found[0]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_work_grows_with_the_number_of_steps(plans, shape):
    configure(plans, plan_by="planner")
    complete(plans, shape(2))  # what is imported and compiled at the first time
    few, many = (count_calls(lambda count=count: complete(plans, shape(count))) for count in (50, 200))
    assert many < 4.4 * few


def test_plan_beyond_the_limit_is_refused_and_nothing_runs(plans):
    configure(plans, plan_by="planner", max_malformed=0)
    speak(plans, planner=[planned(*SHAPES["a chain"](17_000))])
    refused = run(plans, "do")
    assert refused.error.code == "MALFORMED_AGENT_MESSAGE"
    assert "100000" in str(refused.error)
    assert not plans.all("tool.call")
    assert plans.payload("context.failed")["reason"].startswith("MALFORMED_AGENT_MESSAGE: ")


# --- ten thousand -----------------------------------------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_ten_thousand_steps_complete_in_memory_that_grows_with_them(plans, shape):
    configure(plans, plan_by="planner")
    complete(plans, shape(100))
    peaks = []
    for count in (2_500, 10_000):
        tracemalloc.start()
        context = complete(plans, shape(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert set(notes(context).values()) == {"completed"}
    assert peaks[1] < 5 * peaks[0]
    assert peaks[1] < 10_000 * 40 * 1024


@pytest.mark.campaign
def test_ten_thousand_steps_of_skills_are_compiled_executed_verified_and_shown(plans):
    names = [f"inventory{at}" for at in range(50)]
    for name in names:
        skill(plans, name, SHAPES["a chain"](200))
    context = run(plans, " ".join(["do", *names])).value.context
    assert (context.state, len(context.report["steps_completed"])) == ("COMPLETED", 10_000)
    assert [len(group) for group in context.plan["parallel_groups"]] == [50] * 200
    (session,) = {path.parent.name for path in plans.state.glob("sessions/*/.events.jsonl")}
    assert plans.verify(session).sound
    events = plans.events(session)
    read = fold(ContextFold(), events)[context.run]
    assert read.plan.keys() == {"$sealed", "size"}  # it exceeds one line of the ledger
    with Folder.at(plans.state / "sessions" / session) as folder:
        opened = attrs.evolve(read, plan=open_values(folder, read.plan))
    assert opened.plan == context.plan
    assert any(row[0] == "plan" for row in ContextView(read, events).rows())
    assert sum(row[0].startswith("group") for row in ContextView(opened, events).rows()) == 10_000
