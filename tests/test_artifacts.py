"""Artifacts of a run: what states the version of its schema must fit it, and what does not can have any form."""

import pytest

from deedbook import Failed
from deedbook.format.context import ARTIFACTS, ContextFold
from deedbook.format.folds import fold
from deedbook.format.reader import read
from deedbook.format.schema import Schemas, data_folder

V1 = {"schema_version": "v1"}
STEP = {"id": "s1", "description": "look"}
RIGHT = {
    "clarify": {"intent": "look", "constraints": ["be quick"], "more": 1, **V1},
    "set_scope": {"constraints": [], "skill": None, "abilities": ["look"], **V1},
    "plan": {"steps": [STEP], "risks": [], "needs_advisor": False, "schema_version": "v2"},
    "verify": {"output": "done", "steps_completed": ["s1"], "tool_calls_made": [], **V1},
    "complete": {"verdict": "pass", "feedback": "as it should be", **V1},
}
"""The move of each state, in their order, with an artifact that fits."""
WRONG = {
    "clarification without an intent": ("clarify", {"constraints": [], **V1}, "$: "),
    "clarification with an empty intent": ("clarify", {"intent": "", **V1}, "$.intent"),
    "clarification, constraint no text": ("clarify", {"intent": "x", "constraints": [1], **V1}, "$.constraints[0]"),
    "clarification of an unknown version": ("clarify", {"intent": "x", "schema_version": "v9"}, "$.schema_version"),
    "clarification, version no text": ("clarify", {"intent": "x", "schema_version": [1]}, "$.schema_version"),
    "scope without constraints": ("set_scope", {"abilities": [], **V1}, "$: "),
    "scope, abilities no list": ("set_scope", {"constraints": [], "abilities": "look", **V1}, "$.abilities"),
    "scope with a skill that is no name": ("set_scope", {"constraints": [], "skill": 1, **V1}, "$.skill"),
    "plan v1 without steps": ("plan", {**RIGHT["plan"], "steps": [], **V1}, "$.steps"),
    "plan v2, unknown tag": ("plan", {**RIGHT["plan"], "steps": [{**STEP, "tags": ["x"]}]}, "$.steps[0].tags[0]"),
    "plan v2 with an unknown member": ("plan", {**RIGHT["plan"], "more": 1}, "more"),
    "plan of an unknown version": ("plan", {**RIGHT["plan"], "schema_version": "v3"}, "$.schema_version"),
    "report without an output": ("verify", {"steps_completed": [], "tool_calls_made": [], **V1}, "$: "),
    "verification that did not pass": ("complete", {"verdict": "fail", **V1}, "$.verdict"),
    "verification, check no text": ("complete", {"verdict": "pass", "checks": [None], **V1}, "$.checks[0]"),
}  # fmt: skip


def played(lab, work):
    """Run *work* as a flow; return the reply, or the error, and the context as a reader of the ledger sees it."""
    lab.flow("work", work)
    lab.skill("greet", allows="work", triggers="hello")
    with lab.session("run") as session:
        got = session.run("hello")
    (ledger,) = lab.state.glob("sessions/*/.events.jsonl")
    return got, fold(ContextFold(), read(ledger)).latest


def advance_to(run, verb):
    """Make the moves before *verb*, with artifacts that fit."""
    for name, artifact in RIGHT.items():
        if name == verb:
            return
        getattr(run.context, name)(artifact)
        if name == "plan":
            run.context.begin_execution()


def test_artifacts_that_fit_are_kept_as_they_are(lab):
    def work(args, run):
        advance_to(run, None)

    _, context = played(lab, work)
    kept = (context.clarification, context.scope, context.plan, context.report, context.verification)
    assert kept == tuple(RIGHT.values())
    assert context.state == "COMPLETED"


def test_directive_of_version_2_is_a_clarification(lab):
    directive = {"intent": "look", "constraints": [], "cycle": "check", "schema_version": "v2"}

    def work(args, run):
        with pytest.raises(Failed, match=r"the clarification does not fit lead_directive_v2: \$\.cycle"):
            run.context.clarify({**directive, "cycle": ""})
        run.context.clarify(directive)
        run.answer("done")

    _, context = played(lab, work)
    assert context.clarification == directive


@pytest.mark.parametrize(("verb", "artifact", "place"), WRONG.values(), ids=WRONG)
def test_wrong_artifact_is_refused_with_its_place_and_writes_nothing(lab, verb, artifact, place):
    refused = []

    def work(args, run):
        advance_to(run, verb)
        before = run.context.state
        try:
            getattr(run.context, verb)(artifact)
        except Failed as failure:
            refused.append((failure.code, str(failure)))
        assert run.context.state == before
        run.context.fail("enough")

    _, context = played(lab, work)
    ((code, why),) = refused
    assert code == "SCHEMA_VIOLATION"
    assert place in why
    assert context.state == "FAILED"
    taken = list(RIGHT).index(verb)
    moves = ["clarified", "scoped", "planned", "executing", "verifying", "completed"]
    moves = [f"context.{name}" for name in moves[: taken + (verb in ("verify", "complete"))]]
    written = [name for name in lab.types() if name.startswith("context.") and name != "context.noted"]
    assert written == ["context.created", *moves, "context.failed"]
    assert lab.types().count("worker.report") == (verb == "complete")


def test_artifact_without_a_version_can_have_any_form(lab):
    def work(args, run):
        run.context.clarify({"anything": [1, {"a": None}]})
        run.context.set_scope({})
        run.context.plan({"steps": "later"})
        run.context.begin_execution()
        run.context.note("finding", {"of": "another form"})
        run.context.verify(RIGHT["verify"])
        run.context.complete({"verdict": ["of my own"]})

    _, context = played(lab, work)
    assert (context.state, context.clarification["anything"]) == ("COMPLETED", [1, {"a": None}])


def test_findings_are_typed_entries_of_the_context(lab):
    finding = {"check": "style", "level": "warning", "message": "too long", "line": 3}

    def work(args, run):
        run.context.add_finding(finding)
        for wrong in ({"check": "x"}, {**finding, "level": "fatal"}, {**finding, "schema_version": "v2"}):
            with pytest.raises(Failed, match=r"finding") as refused:
                run.context.add_finding(wrong)
            assert refused.value.code == "SCHEMA_VIOLATION"
        run.answer("done")

    _, context = played(lab, work)
    assert context.findings == [{**finding, **V1}]
    assert [each.payload["event_type"] for each in lab.all("context.noted")] == ["finding"]


def test_every_artifact_has_schemas_that_exist():
    known = Schemas.load(data_folder("schemas")).ids()
    assert {name for versions in ARTIFACTS.values() for name in versions.values()} <= {*known}


def test_messages_of_the_roles_are_artifacts():
    """A directive is a clarification, and a review that passes is a verification."""
    schemas = Schemas.load(data_folder("schemas"))
    directive = {"intent": "x", "constraints": [], "needs_advisor": True, **V1}
    review = {"verdict": "pass", "feedback": "good", **V1}
    for role, artifact, value in (
        ("lead_directive_v1", "clarification_v1", directive),
        ("review_result_v1", "verification_v1", review),
    ):
        assert not schemas.validator(role).violations(value)
        assert not schemas.validator(artifact).violations(value)
