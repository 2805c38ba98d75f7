"""The parts of a plan between its gates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook_flow_review.plan_parts import merge_reports, select_steps, split_plan
from deedbook_flow_runcontext.plan_summary import TAGS
from deedbook_flow_runcontext.step_graph import StepGraph


def step(name, *after, tag=None, ability=None):
    made = {"id": name, "description": name, "depends_on": list(after)}
    return made | ({"tags": [tag]} if tag else {}) | ({"ability": ability} if ability else {})


def gate(name, *after):
    return step(name, *after, tag="approval-gate")


def parts(*steps, **more):
    found = split_plan({"steps": list(steps), "schema_version": "v2", **more})
    return [([each["id"] for each in part.asked], [each["id"] for each in part.steps]) for part in found]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step("a"), step("b", "a")], [([], ["a", "b"])]),
        ([gate("g")], [(["g"], [])]),
        ([gate("g"), step("a", "g")], [(["g"], ["a"])]),
        ([step("a"), gate("g", "a"), step("b", "g")], [([], ["a"]), (["g"], ["b"])]),
        ([step("a"), step("b"), gate("g", "a"), step("c", "g")], [([], ["a", "b"]), (["g"], ["c"])]),
        ([gate("g"), step("a", "g", tag="destructive", ability="x")], [(["g", "a"], ["a"])]),
        ([gate("g"), step("a", "g"), step("b", "a", tag="destructive")], [(["g"], ["a"]), (["b"], ["b"])]),
        ([step("a", tag="approval-gate", ability="x"), step("b", "a")], [(["a"], ["a", "b"])]),
        ([step("a"), gate("g", "a"), step("b", "g"), gate("h", "b")], [([], ["a"]), (["g"], ["b"]), (["h"], [])]),
    ],
)
def test_plan_is_split_where_a_person_is_asked(steps, expected):
    assert parts(*steps) == expected


def test_groups_that_a_plan_states_say_what_a_gate_guards():
    steps = [gate("g"), step("a"), step("b")]
    assert parts(*steps) == [([], ["a", "b"]), (["g"], [])]
    assert parts(*steps, parallel_groups=[["a"], ["g"], ["b"]]) == [([], ["a"]), (["g"], ["b"])]


def test_plan_of_version_1_has_one_part():
    assert [len(part.steps) for part in split_plan({"steps": [step("a"), step("b", "a")], "schema_version": "v1"})] == [
        2
    ]


@st.composite
def plans(draw):
    steps = []
    for number in range(draw(st.integers(1, 8))):
        after = draw(st.sets(st.integers(0, number - 1))) if number else set()
        tag = draw(st.sampled_from([None, None, *TAGS]))
        ability = draw(st.sampled_from([None, "x"]))
        steps.append(step(f"s{number}", *(f"s{each}" for each in sorted(after)), tag=tag, ability=ability))
    return steps


@given(plans())
def test_every_step_is_in_one_part_and_no_tagged_step_is_done_before_it_is_asked_about(steps):
    found = split_plan({"steps": steps, "schema_version": "v2"})
    place = {each["id"]: number for number, part in enumerate(found) for each in (*part.asked, *part.steps)}
    assert set(place) == {each["id"] for each in steps}
    assert sum(len(part.steps) for part in found) + sum(len(part.gates) for part in found) == len(steps)
    asked = {each["id"]: number for number, part in enumerate(found) for each in part.asked}
    assert set(asked) == {each["id"] for each in steps if each.get("tags")}
    assert all(place[name] == number for name, number in asked.items())
    group_of = {name: number for number, group in enumerate(StepGraph.of(steps).groups) for name in group}
    for each in steps:
        assert all(place[before] <= place[each["id"]] for before in each["depends_on"])
        assert all(asked[name] <= place[each["id"]] for name in asked if group_of[name] < group_of[each["id"]])
    assert all(part.asked for part in found[1:])


def test_selected_steps_depend_on_each_other_only():
    plan = {"steps": [step("a"), step("b", "a"), step("c", "a", "b")], "order": ["a", "b", "c"], "risks": []}
    assert select_steps(plan, plan["steps"]) is plan
    assert select_steps(plan, plan["steps"][1:]) == {"steps": [step("b"), step("c", "b")], "risks": []}


def test_reports_of_two_parts_are_one_report():
    first = {"output": "a", "steps_completed": ["a"], "steps_skipped": ["x"], "tool_calls_made": ["t:1"]}
    second = {"output": "b", "steps_completed": ["b"], "tool_calls_made": []}
    assert merge_reports({}, second) == second
    assert merge_reports(first, second) == {
        "output": "a\nb", "steps_completed": ["a", "b"], "steps_skipped": ["x"], "tool_calls_made": ["t:1"],
    }  # fmt: skip
