"""The person of a pipeline is a person: nothing answers in their place, and a task does not ask for ever."""

import json

import attrs
import pytest
from commandline import Place
from pipelines import WORKSPACES
from shop import ABILITIES, FIRST, SECOND, Shop, answer, build, check, outline
from test_task_run import approve, approver

from deedbook.format.errors import DeedbookError, Err
from deedbook_flow_swe.tools.review import SweReview

QUESTION = {"reason": "which limit?", "missing": []}
ASKED = {"task": "task-1", "phase": "outline", "issue": "outline::", "reason": "which limit?", "seen": {}}
UNTAGGED = {"summary": "Ask a person.", "handler": {"tool": "swe-review"}}


@pytest.fixture
def shop(lab):
    """Return a shop whose outliner always asks a person."""
    made = Shop(lab)
    approver(made)
    made.good()
    made.answers["outliner"] = [answer({}, blocked=QUESTION)]
    return made


def refused(lab):
    """Return the faults for which the workspace does not start: their places and messages."""
    with pytest.raises(DeedbookError) as problem, lab.kernel():
        pass
    return [(str(each.place), each.message) for each in problem.value.errors]


def test_workspace_whose_question_asks_nobody_does_not_start(shop):
    shop.lab.settings(abilities={"swe/human-review": {"tags": []}})
    [(place, why)] = refused(shop.lab)
    assert place.startswith(".system/deedbook.yaml:")
    assert "no call of swe/human-review asks one; add to the ability: tags: [approval-gate]" in why


def test_pipeline_asks_a_person_with_the_tool_for_questions_and_nothing_else(shop):
    shop.lab.tool("yes", lambda args, ctx: {"decision": "go-on", "note": ""}, tags=["approval-gate"])
    shop.change("pipeline.yaml", "swe/human-review", "yes")
    [(place, why)] = refused(shop.lab)
    assert place.startswith(".system/swe/pipeline.yaml:")
    assert "yes does not ask a person" in why
    assert "handler: {tool: swe-review} and tags: [approval-gate]" in why


def test_missing_ability_is_declared_as_a_question(shop):
    shop.change("pipeline.yaml", "swe/human-review", "swe/ask")
    [(_, why)] = refused(shop.lab)
    assert "declare it with handler: {tool: swe-review} and tags: [approval-gate]" in why


def test_question_that_no_person_has_approved_fails(shop, monkeypatch):
    """The tool itself looks for the answer: also where the check of the workspace is left out."""
    monkeypatch.setattr(SweReview, "spec", attrs.evolve(SweReview.spec, check=None))
    shop.lab.settings(abilities={"swe/human-review": {"tags": []}})
    with shop.lab.session() as session:
        found = session.call("swe/human-review", ASKED)
    assert isinstance(found, Err)
    assert found.error.code == "APPROVAL_MISSING"
    assert "tags: [approval-gate]" in found.error.message


def test_approved_question_is_answered_with_what_was_approved(shop):
    assert shop.run().error.code == "NEEDS_HUMAN"
    session = shop.lab.ledger().parent.name
    shop.answers["outliner"] = [outline()]
    assert approve(shop, session).value.state == "COMPLETED"
    [answered] = shop.events("answered")
    [granted] = shop.lab.all("approval.granted", session)
    assert (answered["decision"], granted.payload["approver"]) == ("go-on", "ada")


def test_task_that_asks_again_and_again_fails_at_its_limit(shop):
    text = (WORKSPACES / "small/.system/swe/pipeline.yaml").read_text()
    assert "most_escalations" not in text  # the default is 10
    shop.change("pipeline.yaml", "schema_version: v1", "schema_version: v2\nmost_escalations: 2")
    assert shop.run().error.code == "NEEDS_HUMAN"
    session = shop.lab.ledger().parent.name
    assert approve(shop, session).error.code == "NEEDS_HUMAN"
    found = approve(shop, session)
    assert (found.value.state, len(shop.events("escalated")), len(shop.events("answered"))) == ("FAILED", 2, 2)
    assert "a person was asked 2 times, which is the limit (most_escalations of the pipeline small)" in found.value.text
    assert "which limit?" in found.value.text
    assert shop.events("task_ended") == [{"task_id": "task-1", "state": "failed", "commit": None}]
    assert len(shop.blocks()) == 3


def test_review_over_the_limit_ends_the_task_before_its_gate(shop):
    """The last phase is a review that the policy always wants; the outline has used up the only question."""
    policy = "schema_version: v1\nid: always\nkind: review-gating\nrules: []\ndefault: deny\n"
    shop.lab.write("policies/always.yaml", policy)
    shop.change("contracts/check.yaml", "passed: PASSED.md", "passed: CLEARED.md")
    limits = "schema_version: v2\nmost_escalations: 1\nhuman_triggers: always"
    shop.change("pipeline.yaml", "schema_version: v1", limits)
    shop.script(
        outliner=[answer({}, blocked=QUESTION), outline()], builder=[build(FIRST), build(SECOND)], checker=check()
    )
    assert shop.run().error.code == "NEEDS_HUMAN"
    found = approve(shop, shop.lab.ledger().parent.name)
    assert (found.value.state, len(shop.events("escalated"))) == ("FAILED", 1)
    assert not (shop.lab.path / "tasks/task-1/check/CLEARED.md").exists()


def test_record_of_a_pipeline_that_answered_itself_is_not_sound(shop, monkeypatch):
    """The tool answers as it did once: nobody was asked, and the record says that a person decided."""
    monkeypatch.setattr(SweReview, "spec", attrs.evolve(SweReview.spec, check=None))
    monkeypatch.setattr(SweReview, "__call__", lambda self, args, ctx: {"decision": "go-on", "note": ""})
    shop.lab.settings(abilities={"swe/human-review": {"tags": []}})
    assert shop.run().value.state == "FAILED"  # at the limit, which is 10 if the pipeline does not say
    assert len(shop.events("answered")) == 10
    report = shop.lab.verify()
    shop.lab.damaged = True
    assert not report.sound
    assert any("swe.answered names a decision of a person" in each.found for each in report.structure.failures)


@pytest.mark.parametrize("command", [("registry", "lint"), ("lock",), ("swe", "lint"), ("doctor",)], ids=" ".join)
def test_commands_that_check_a_workspace_name_a_question_that_asks_nobody(small, command):
    abilities = {**ABILITIES, "swe/human-review": UNTAGGED, "swe/tests": {"summary": "T.", "handler": {"tool": "echo"}}}
    place = Place(small)
    place.write(".system/deedbook.yaml", json.dumps({"schema_version": "v1", "abilities": abilities}))
    ran = place.here(*command)
    assert ran.status == 1
    assert "no call of swe/human-review asks one; add to the ability: tags: [approval-gate]" in ran.out + ran.err
