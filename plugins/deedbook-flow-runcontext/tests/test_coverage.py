"""A report covers a plan if every step is completed, or optional and reported as skipped."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning import plan, sound_plans

from deedbook_flow_runcontext.coverage import CHECKS, check_coverage

PLAN = plan("a", "b", {"id": "c", "optional": True})


def report(completed, **more):
    return {"output": "", "steps_completed": completed, "schema_version": "v1", **more}


def found(*args, **more):
    return [(each.check, each.steps) for each in check_coverage(PLAN, report(*args, **more))]


@given(st.data(), sound_plans())
def test_report_of_all_steps_covers_and_without_any_one_it_does_not(data, made):
    names = [step["id"] for step in made["steps"]]
    skipped = [step["id"] for step in made["steps"] if step["optional"] and data.draw(st.booleans(), label="skipped")]
    completed = [name for name in data.draw(st.permutations(names)) if name not in skipped]
    assert check_coverage(made, report(completed, steps_skipped=skipped)) == ()
    if completed:
        gone = data.draw(st.sampled_from(completed))
        left = [name for name in completed if name != gone]
        (only,) = check_coverage(made, report(left, steps_skipped=skipped))
        assert (only.check, only.steps) == ("steps_covered", (gone,))


@pytest.mark.parametrize(
    ("completed", "skipped", "findings"),
    [
        (["a", "b", "c"], [], []),
        (["a", "b", "a"], ["c"], []),
        (["a", "b", "c", "nonexistent"], [], [("steps_known", ("nonexistent",))]),
        (["a", "b", "c"], ["nonexistent"], [("steps_known", ("nonexistent",))]),
        (["x"], [], [("steps_known", ("x",)), ("steps_covered", ("a", "b")), ("steps_covered", ("c",))]),
        (["a", "b"], [], [("steps_covered", ("c",))]),
        (["a", "c"], ["b"], [("skips_allowed", ("b",))]),
        (["a", "b", "c"], ["c"], [("skips_allowed", ("c",))]),
    ],
)  # fmt: skip
def test_report_that_does_not_cover_is_refused_with_the_steps(completed, skipped, findings):
    assert found(completed, steps_skipped=skipped) == findings


@pytest.mark.parametrize("skipped", ["c", None, [1], {"c": True}])
def test_skipped_steps_of_a_wrong_form_are_refused(skipped):
    assert [check for check, _ in found(["a", "b"], steps_skipped=skipped)] == ["steps_known"]


def test_plan_v1_is_covered_by_all_its_steps():
    old = {"steps": [{"id": "a", "description": ""}], "risks": [], "needs_advisor": False, "schema_version": "v1"}
    assert check_coverage(old, report(["a"])) == ()
    (only,) = check_coverage(old, report([]))
    assert only.check in CHECKS


def test_module_does_not_import_the_compiler():
    code = "import sys, deedbook_flow_runcontext.coverage; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = [name for name in ran.stdout.split() if name.startswith("deedbook_flow_runcontext.")]
    assert sorted(name.partition(".")[2] for name in own) == ["coverage", "findings", "plans"]
