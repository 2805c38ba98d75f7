"""The summary of a plan and its policy: which steps a person must approve, what is missing, what halts."""

import pytest
from planning import plan

from deedbook import Failed
from deedbook.format.context import RunContext
from deedbook_flow_runcontext.plan_summary import check_policy, plan_summary


def context(made, state="PLANNED"):
    return RunContext(state=state, task="t", source="cli", plan=made)


@pytest.mark.parametrize("tag", ["destructive", "irreversible", "approval-gate"])
def test_tag_requires_a_review(tag):
    decision = check_policy(context(plan("a", {"id": "b", "tags": [tag]})))
    assert decision.verdict == "REQUIRE_REVIEW"
    assert decision.steps == {"b": [tag]}
    assert decision.reason == f'"b" is tagged {tag}'


def test_plan_without_such_tags_is_allowed():
    decision = check_policy(context(plan("a", {"id": "b", "halt_on_failure": True})))
    assert decision.as_json() == {"verdict": "ALLOW", "reason": "", "steps": {}}


def test_several_steps_are_all_named():
    made = plan({"id": "a", "tags": ["irreversible", "destructive"]}, {"id": "b", "tags": ["approval-gate"]})
    decision = check_policy(context(made))
    assert decision.steps == {"a": ["destructive", "irreversible"], "b": ["approval-gate"]}
    assert decision.reason == '"a", "b" are tagged destructive, irreversible, approval-gate'


def test_summary_has_skills_tools_groups_policy_halts_and_warnings():
    made = plan(
        {"id": "a", "ability": "find"}, {"id": "b", "ability": "find", "optional": True},
        {"id": "c", "ability": "count", "depends_on": ["a", "b"], "halt_on_failure": True},
        {"id": "d", "depends_on": ["c"], "tags": ["destructive"]},
        skills_included=[{"name": "x", "reason": "named", "requires": [], "steps": ["a"]}],
        skills_excluded=[{"name": "y", "reason": "tools are missing", "missing_tools": ["docker", "git"]}],
    )  # fmt: skip
    assert plan_summary(context(made)) == {
        "skills_included": [{"name": "x", "reason": "named"}],
        "skills_excluded": [{"name": "y", "reason": "tools are missing", "missing_tools": ["docker", "git"]}],
        "missing_tools": ["docker", "git"],
        "step_count": 4,
        "tool_count": 2,
        "tools": ["count", "find"],
        "parallel_groups": [["a", "b"], ["c"], ["d"]],
        "policy": {"verdict": "REQUIRE_REVIEW", "reason": '"d" is tagged destructive', "steps": {"d": ["destructive"]}},
        "halt_steps": ["c"],
        "approval_needed": True,
        "optional_warnings": [
            'step "c" is required and depends on the optional step "b", which may be skipped'
        ],
    }  # fmt: skip


def test_groups_that_the_plan_states_are_kept():
    made = plan("a", "b", parallel_groups=[["a"], ["b"]], order=["a", "b"])
    assert plan_summary(context(made))["parallel_groups"] == [["a"], ["b"]]


def test_plan_v1_has_a_summary():
    made = {"steps": [{"id": "a", "description": ""}], "risks": [], "needs_advisor": False, "schema_version": "v1"}
    assert plan_summary(context(made))["step_count"] == 1


@pytest.mark.parametrize("made", [None, {}, {"steps": []}, {"$sealed": "0" * 64, "size": 9}])
def test_context_without_a_plan_has_no_summary(made):
    for function in (plan_summary, check_policy):
        with pytest.raises(Failed) as caught:
            function(context(made, "CREATED"))
        assert caught.value.code == "NOT_AVAILABLE"
