"""A flow sees the skills of the charter and the abilities in its scope, the same ones when its run is resumed."""

import pytest

from deedbook import Failed
from deedbook.contract import Branch


@pytest.fixture
def flows(lab):
    """Declare three tools, two skills, and a model."""
    lab.tool("echo", lambda args, ctx: args)
    lab.tool("erase", lambda args, ctx: args, effects="write", tags=["destructive"])
    lab.tool("other", lambda args, ctx: args)
    lab.model(lambda request, ctx: "")
    lab.skill("greet", allows="echo erase nothing", triggers="hello")
    lab.skill("later", allows="other", triggers="later")
    return lab


def see(lab, work, prompt="hello"):
    """Run a flow that returns nothing, and return what *work* gave."""
    seen = []

    def flow(args, run):
        seen.append(work(run))
        run.answer("done")

    lab.flow("work", flow)
    with lab.session("run") as session:
        assert session.run(prompt).value.state == "COMPLETED"
    return seen[0]


def test_abilities_are_those_of_the_skill_without_models(flows):
    found = see(flows, lambda run: run.abilities())
    assert [(each.id, each.kind, each.effects, each.tags) for each in found] == [
        ("echo", "tool", "none", frozenset()), ("erase", "tool", "write", frozenset({"destructive"})),
    ]  # fmt: skip
    assert found[0].summary == "echo."


def test_abilities_of_a_branch_are_those_that_it_is_allowed(flows):
    def names(run):
        return [each.id for each in run.abilities()]

    found = see(flows, lambda run: run.parallel([Branch("one", names, {"echo", "other"}), Branch("two", names)]))
    assert found == [["echo"], ["echo", "erase"]]


def test_run_without_a_skill_has_no_abilities(flows):
    assert see(flows, lambda run: run.abilities(), "something else") == []


def test_skills_are_all_of_the_charter_with_what_is_missing(flows):
    found = see(flows, lambda run: run.skills())
    assert [(each.skill.name, each.skill.allowed, sorted(each.missing)) for each in found] == [
        ("greet", frozenset({"echo", "erase"}), ["nothing"]), ("later", frozenset({"other"}), []),
    ]  # fmt: skip
    assert "no ability" in found[0].missing["nothing"]


def test_changing_what_a_flow_got_changes_nothing(flows):
    def spoil(run):
        run.abilities().clear()
        run.skills()[0].missing.clear()
        return len(run.abilities()), len(run.skills()[0].missing)

    assert see(flows, spoil) == (2, 1)


@pytest.mark.parametrize(("lost", "effects", "told"), [(True, "write", True), (False, "write", False),
                                                       (True, "none", False)])  # fmt: skip
def test_flow_is_told_whether_the_outcome_of_a_call_is_unknown(flows, lost, effects, told):
    def fail(args, ctx):
        raise Failed("BROKEN", "cut off", lost=lost)

    def work(run):
        with pytest.raises(Failed) as caught:
            run.call("echo", {})
        return caught.value.code, caught.value.lost

    flows.tool("echo", fail, effects=effects)
    assert see(flows, work) == ("BROKEN", told)
    assert flows.payload("tool.error")["outcome"] == ("unknown" if told else "failed")
