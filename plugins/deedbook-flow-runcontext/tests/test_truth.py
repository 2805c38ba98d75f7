"""The context of a run is the only truth: nothing else holds its state, and it can be rebuilt from the ledger alone."""

import json
import shutil

import pytest
from test_modes import OUTPUT, phases

from deedbook.format.context import REPORT, ContextFold
from deedbook.format.files import Folder
from deedbook.format.folds import fold
from deedbook.format.reader import read
from deedbook_flow_runcontext.bundles import parse_bundle, read_session
from deedbook_inspect.ledger_contexts import load, save

FLOWS = {
    "five-point": ({"prompt": "look", "output": OUTPUT}, {"constraints": ["be quick"], "criteria": ["tests"]}),
    "ooda": ({"prompt": "mend it"}, {name: name for name in ("observe", "orient", "decide", "act", "reflect")}),
    "route-verdict": ({"task_id": "t1", "verdict": "ACCEPT", "content": "kept apart"}, {"propose": "propose"}),
    "content-pipeline": ({"prompt": "write"}, {"analyze": "analyze", "bridge": "bridge", "execute": "execute"}),
}
"""The arguments and settings of each flow that keeps a context."""


@pytest.fixture(params=FLOWS)
def played(request, lab, tmp_path):
    """Run a flow; give a copy of its ledger, apart from everything else, and the span of its call."""
    args, settings = FLOWS[request.param]
    phases(lab, [{"done": False, "score": 1}, {"done": True, "score": 2}])
    for name in ("propose", "analyze", "bridge", "execute"):
        lab.tool(name, lambda args, ctx, name=name: {"text": f"{name} was done"})
    lab.settings(abilities={"tried": {"summary": "x", "handler": {"flow": request.param}, "with": settings}})
    lab.skill("try", allows="tried propose analyze bridge execute observe orient decide act reflect")
    lab.flow("caller", lambda _, run: (run.call("tried", args), "done")[1])
    with lab.session("run") as session:
        assert session.run("try").value.state == "COMPLETED"
    (written,) = lab.state.glob("sessions/*/.events.jsonl")
    (call,) = (each.span for each in lab.all("flow.call") if each.payload["flow"] == "tried")
    (tmp_path / "alone").mkdir()
    ledger = shutil.copy(written, tmp_path / "alone/.events.jsonl")
    return ledger, call


def context_of(played):
    ledger, call = played
    return fold(ContextFold(), read(ledger))[call]


def test_run_is_known_from_its_ledger_alone_after_every_result_is_gone(played):
    context = context_of(played)
    assert context.state == "COMPLETED"
    assert context.plan["steps"]
    assert context.report["output"] == context.reply
    assert context.verification["verdict"] == "pass"
    assert all(step in context.report["steps_completed"] for step in [each["id"] for each in context.plan["steps"]])


def test_no_artifact_is_written_twice(played):
    """Each artifact stands in one event, and the results of the flows refer to the context."""
    ledger, call = played
    events, context = list(read(ledger)), context_of(played)
    for artifact in (context.clarification, context.scope, context.plan, context.report, context.verification):
        if artifact is not None:
            raw = json.dumps(artifact, sort_keys=True)
            holders = [each.type for each in events if raw in json.dumps(each.payload, sort_keys=True)]
            holders = [
                each
                for each in holders
                if (each.startswith("context.") and each != "context.created") or each in (REPORT, "flow.result")
            ]  # what a flow was given is its task
            assert len(holders) == 1, (raw, holders)
    (result,) = (each.payload["result"] for each in events if each.type == "flow.result" and each.parent == call)
    assert result == {"context": call}


def test_artifacts_state_the_version_of_their_schema(played):
    """So that the kernel checks them; what a flow was given in another form is recorded as given."""
    context = context_of(played)
    for artifact in (context.clarification, context.scope, context.plan, context.verification):
        assert artifact is None or "schema_version" in artifact


# --- the audit of the nine phases -------------------------------------------------------------------------------------


def is_created(context, events):
    return context.task and context.source and events[0].type == "context.created"


def is_clarified(context, events):
    return context.clarification == payloads(events, "context.clarified")["clarification"]


def is_scoped(context, events):
    return context.scope == payloads(events, "context.scoped").get("scope")


def is_planned(context, events):
    return context.plan == payloads(events, "context.planned")["plan"]


def is_executed(context, events):
    return context.attempts == payloads(events, "context.executing")["attempt"] == 1


def is_logged(context, events):
    noted = [each.payload for each in events if each.type == "context.noted"]
    return [(each.event_type, each.data) for each in context.log] == [(n["event_type"], n["data"]) for n in noted]


def is_reported(context, events):
    (report,) = (each for each in events if each.type == REPORT)
    return context.report == report.payload and payloads(events, "context.verifying")["report"] == report.span


def is_verified(context, events):
    return context.verification == payloads(events, "context.completed")["verification"]


def is_ended(context, events):
    return context.state == "COMPLETED" and events[-1].type in ("context.completed", "context.noted")


def payloads(events, event_type):
    found = [each.payload for each in events if each.type == event_type]
    return found[-1] if found else {}


PHASES = (is_created, is_clarified, is_scoped, is_planned, is_executed, is_logged, is_reported, is_verified, is_ended)


def test_nine_phases_of_a_run_have_one_truth(played):
    """Created, clarified, scoped, planned, executed, logged, reported, verified, ended: each is what its event says."""
    ledger, call = played
    context = context_of(played)
    own = [each for each in read(ledger) if each.parent == call and (each.type == REPORT or "context." in each.type)]
    assert [phase.__name__ for phase in PHASES if not phase(context, own)] == []


def test_bundle_preserves_all_of_it(played, tmp_path):
    ledger, call = played
    context = context_of(played)
    with Folder.at(ledger.parent) as folder:
        bundle = read_session(folder, call, sealed=True)
    again = parse_bundle(bundle.encode(), "run.json")
    assert (again.context, again.raw, again.head) == (context, ledger.read_bytes(), bundle.head)
    save(context, bundle.head, tmp_path / "old.json")
    assert load(tmp_path / "old.json", ledger) == context
