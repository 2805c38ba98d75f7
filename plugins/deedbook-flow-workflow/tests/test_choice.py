"""The flow `workflow-choice`: a cycle is chosen by a skill or by the lead, and an unknown one fails."""

import json

import pytest
from cycles import document, write_cycle, write_persona

from deedbook import Err


@pytest.fixture
def front(lab):
    """Give a lab whose profile chooses cycles; a persona may look, and so may the skill that names a cycle."""
    lab.tool("look", lambda args, ctx: {"seen": True}, effects="read")
    lab.tool("other", lambda args, ctx: pytest.fail("nobody allows this"), effects="read")

    def examine(args, run):
        run.call("look", {})
        return json.dumps({"findings": []})

    lab.flow("examine", examine)
    lab.flow("plain", lambda args, run: "no cycle")
    write_persona(lab, "reviewer/ada", "look")
    write_cycle(lab, {"id": "first", "agents_invoked": ["reviewer/ada"]})
    choose(lab)
    return lab


def choose(lab, **settings):
    row = {"summary": "Choose.", "handler": {"flow": "workflow-choice"}, "uses": ["workflow/*", "plain"]}
    lab.settings(abilities={"choose": {**row, "with": settings}}, profiles={"lab": {"flow": "choose"}})


def skill(lab, *allowed, cycle="check"):
    front = {"name": "page", "description": "Checks pages.", "allowed-tools": list(allowed), "triggers": ["page"],
             "metadata": {"deedbook": {"cycle": cycle}}}  # fmt: skip
    lab.write("skills/page/SKILL.md", document(front, "Check."))


def run(lab, prompt="check the page"):
    with lab.session("run") as session:
        return session.run(prompt)


def test_skill_names_the_cycle(front):
    skill(front, "look")
    reply = run(front).value
    assert (reply.state, reply.text) == ("COMPLETED", "The cycle check: done. first was the last phase")
    assert front.payload("workflow.started")["cycle_id"] == "check"
    assert front.payload("skill.invoke")["skill"] == "page"


def test_personas_may_do_no_more_than_the_skill_that_names_the_cycle(front):
    skill(front, "other")
    assert "skill reviewer-ada allows look, which skill page does not allow" in run(front).error.message
    assert front.payload("workflow.aborted")["cycle_id"] == "check"
    assert "tool.call" not in front.types()


def test_unknown_cycle_of_a_skill_runs_nothing(front):
    skill(front, "look", cycle="chek")
    error = run(front).error
    assert error.code == "NOT_AVAILABLE"
    assert "there is no cycle 'chek'; did you mean \"check\"?" in error.message


@pytest.mark.parametrize(
    ("cycle", "text"), [("check", "The cycle check: done. first was the last phase"), (None, "no cycle")]
)
def test_lead_names_the_cycle(front, cycle, text):
    front.role("lead")
    front.model(lambda request, ctx: json.dumps(
        {"intent": "x", "constraints": [], "cycle": cycle, "schema_version": "v2"}))  # fmt: skip
    choose(front, lead=True, otherwise="plain")
    assert run(front).value.text == text


def test_lead_that_names_an_unknown_cycle_is_told_so(front):
    said = []

    def lead(request, ctx):
        said.append(request["messages"][-1]["content"])
        named = "chek" if len(said) == 1 else "check"
        return json.dumps({"intent": "x", "constraints": [], "cycle": named, "schema_version": "v2"})

    front.role("lead")
    front.model(lead)
    choose(front, lead=True)
    assert run(front).value.state == "COMPLETED"
    assert "there is no cycle" in said[1]


def test_prompt_without_a_cycle_and_without_another_flow_fails(front):
    found = run(front)
    assert isinstance(found, Err)
    assert "no skill and no lead named a cycle for this prompt; cycles: check" in found.error.message
