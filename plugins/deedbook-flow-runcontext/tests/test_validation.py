"""The validator: sound plans have no finding, and each kind of broken plan has one that names the steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning import SCHEMAS, plan, sound_plans

from deedbook_flow_runcontext.findings import errors
from deedbook_flow_runcontext.plans import AbilityFacts, Registry, upcast
from deedbook_flow_runcontext.step_graph import StepGraph
from deedbook_flow_runcontext.validation import CHECKS, validate_plan

REGISTRY = Registry(
    abilities={
        "read": AbilityFacts("read"),
        "erase": AbilityFacts("write", frozenset({"destructive"})),
        "send": AbilityFacts("irreversible"),
        "publish": AbilityFacts("write", frozenset({"approval-gate"})),
    },
    skills={"base": (), "survey": ("base",)},
)


def found(made, registry=None):
    return [(each.check, each.steps) for each in errors(validate_plan(made, registry))]


def broken(draw, made, **changes):
    """Return *made* with one drawn step changed, and that step's id."""
    number = draw(st.integers(0, len(made["steps"]) - 1))
    steps = [*made["steps"]]
    steps[number] = {**steps[number], **changes}
    return {**made, "steps": steps}, steps[number]["id"]


# --- sound plans ------------------------------------------------------------------------------------------------------


@given(sound_plans())
def test_sound_plan_has_no_error(made):
    assert found(made) == []


@given(sound_plans())
def test_order_respects_dependencies_and_keeps_the_order_of_the_plan_inside_a_group(made):
    graph = StepGraph.of(made["steps"])
    declared = [step["id"] for step in made["steps"]]
    group_of = {name: number for number, group in enumerate(graph.groups) for name in group}
    assert sorted(group_of) == sorted(declared)
    for step in made["steps"]:
        earlier = {*step["depends_on"], *(source["step"] for source in step["inputs"].values())}
        assert group_of[step["id"]] == max((group_of[name] + 1 for name in earlier), default=0)
    assert all(group == [name for name in declared if name in group] for group in graph.groups)


@given(sound_plans())
def test_order_and_groups_of_the_graph_are_accepted_as_those_of_the_plan(made):
    groups = StepGraph.of(made["steps"]).groups
    order = [name for group in groups for name in group]
    assert found({**made, "order": order, "parallel_groups": groups}) == []


# --- broken plans -----------------------------------------------------------------------------------------------------


def test_plan_without_steps_is_refused():
    assert found({**plan("a"), "steps": []}) == [("non_empty", ())]


@given(st.data(), sound_plans(least=2))
def test_two_steps_of_one_id_are_refused(data, made):
    twice = data.draw(st.sampled_from(made["steps"]))
    assert ("unique_ids", (twice["id"],)) in found({**made, "steps": [*made["steps"], twice]})


@given(st.data(), sound_plans())
def test_dependency_on_a_missing_step_is_refused(data, made):
    made, name = broken(data.draw, made, depends_on=["nobody"], inputs={})
    assert ("no_orphans", (name, "nobody")) in found(made)


@given(st.data(), sound_plans())
def test_input_from_a_missing_step_is_refused(data, made):
    made, name = broken(data.draw, made, inputs={"x": {"step": "nobody", "pointer": ""}})
    assert ("no_orphans", (name, "nobody")) in found(made)


@given(st.data(), sound_plans(least=2))
def test_circle_is_refused_and_its_steps_are_named_in_order(data, made):
    circle = data.draw(st.permutations([step["id"] for step in made["steps"]]))
    size = data.draw(st.integers(1, len(circle)))
    following = dict(zip(circle[:size], [*circle[1:size], circle[0]], strict=True))
    steps = [
        {**step, "depends_on": [following[step["id"]]], "inputs": {}} if step["id"] in following else step
        for step in made["steps"]
    ]
    (cycle,) = [names for check, names in found({**made, "steps": steps}) if check == "dag_acyclic"]
    assert {name: following[name] for name in cycle} == following
    assert all(following[name] == cycle[(at + 1) % size] for at, name in enumerate(cycle))


def test_two_circles_are_both_named():
    made = plan(
        {"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}, {"id": "c", "depends_on": ["c", "a"]},
        {"id": "d", "depends_on": ["a"]}, {"id": "e", "depends_on": ["e"]},
    )  # fmt: skip
    cycles = {frozenset(names) for check, names in found(made) if check == "dag_acyclic"}
    assert {frozenset({"a", "b"}), frozenset({"e"})} <= cycles


@given(st.data(), sound_plans(least=2))
def test_order_that_has_a_dependent_before_its_dependency_is_refused(data, made):
    dependent = [step for step in made["steps"] if step["depends_on"]]
    if not dependent:
        return
    step = data.draw(st.sampled_from(dependent))
    order = [name for group in StepGraph.of(made["steps"]).groups for name in group]
    order.remove(step["id"])
    checks = found({**made, "order": [step["id"], *order]})
    assert ("required_skills_ordered", (step["id"], step["depends_on"][0])) in checks
    together = found({**made, "parallel_groups": [[*order, step["id"]]]})
    assert ("required_skills_ordered", (step["id"], step["depends_on"][0])) in together


@pytest.mark.parametrize("order", [["a"], ["a", "b", "b"], ["a", "b", "c"], []])
def test_order_that_has_not_each_step_once_is_refused(order):
    assert [check for check, _ in found(plan("a", "b", order=order))] == ["required_skills_ordered"]


def test_required_skill_without_a_step_or_not_before_is_refused():
    lacking = plan({"id": "x", "skill": "survey"})
    assert found(lacking, REGISTRY) == [("required_skills_ordered", ("x",))]
    beside = plan({"id": "x", "skill": "survey"}, {"id": "y", "skill": "base"})
    assert found(beside, REGISTRY) == [("required_skills_ordered", ("x", "y"))]
    after = plan({"id": "x", "skill": "survey", "depends_on": ["y"]}, {"id": "y", "skill": "base"})
    assert found(after, REGISTRY) == []


def test_required_skills_of_a_compiled_plan_are_checked_without_a_registry():
    skills = [
        {"name": "survey", "reason": "r", "requires": ["base"], "steps": ["x"]},
        {"name": "base", "reason": "r", "steps": ["y", "z"]},
    ]
    assert found(plan("x", "y", "z", skills_included=skills)) == [("required_skills_ordered", ("x", "y"))]
    missing = found(plan("x", "y", skills_included=skills))
    assert ("no_orphans", ("z",)) in missing


# --- policy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", [{"tags": ["approval-gate"]}, {"halt_on_failure": True}])
@pytest.mark.parametrize("risk", [{"tags": ["destructive"]}, {"tags": ["irreversible"]}, {"ability": "erase"},
                                  {"ability": "send"}])  # fmt: skip
def test_gate_after_or_beside_what_it_guards_is_refused(gate, risk):
    after = plan({"id": "act", **risk}, {"id": "gate", "depends_on": ["act"], **gate})
    beside = plan({"id": "act", **risk}, {"id": "gate", **gate})
    before = plan({"id": "act", "depends_on": ["gate"], **risk}, {"id": "gate", **gate})
    registry = REGISTRY if "ability" in risk else None
    assert found(after, registry) == found(beside, registry) == [("policy_consistency", ("act", "gate"))]
    assert found(before, registry) == []


def test_a_step_that_waits_for_its_own_approval_needs_no_gate_before():
    approved = {"id": "act", "tags": ["irreversible", "approval-gate"]}
    assert found(plan(approved, {"id": "gate", "halt_on_failure": True})) == []


def test_a_risky_step_that_halts_on_failure_is_no_gate_for_others():
    steps = {"id": "act", "tags": ["destructive"]}, {"id": "erase", "ability": "erase", "halt_on_failure": True}
    assert found(plan(*steps), REGISTRY) == []
    assert found(plan(*steps)) == [("policy_consistency", ("act", "erase"))]


def test_a_plan_without_gates_leaves_risky_steps_to_the_policies():
    assert found(plan({"id": "act", "tags": ["irreversible"]}, "later")) == []


@pytest.mark.parametrize(
    "step",
    [
        {"optional": True, "halt_on_failure": True},
        {"optional": True, "tags": ["approval-gate"]},
        {"ability": "read", "tags": ["destructive"]},
    ],
)
def test_contradicting_tags_are_refused(step):
    assert found(plan({"id": "x", **step}), REGISTRY) == [("policy_consistency", ("x",))]


# --- optional outputs and targets -------------------------------------------------------------------------------------


@given(st.data(), sound_plans(least=2))
def test_required_step_that_needs_an_optional_output_is_refused(data, made):
    first, second = data.draw(st.permutations(made["steps"]))[:2]
    steps = [
        {"id": "taker", "description": "", "inputs": {"x": {"step": first["id"], "pointer": "/a"}}},
        *({**step, "optional": True, "tags": []} if step is first else step for step in made["steps"]),
    ]
    assert ("optional_output_safety", ("taker", first["id"])) in found({**made, "steps": steps})
    steps[0]["optional"] = True
    assert ("optional_output_safety", ("taker", first["id"])) not in found({**made, "steps": steps})
    assert second["id"] != first["id"]


def test_required_step_after_an_optional_one_is_only_a_warning():
    (only,) = validate_plan(plan({"id": "a", "optional": True}, {"id": "b", "depends_on": ["a"]}))
    assert (only.level, only.check, only.steps) == ("warning", "optional_output_safety", ("b", "a"))


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"ability": "read", "skill": "base"}, "has an ability and a skill"),
        ({"ability": "read", "args": {"x": 1}, "inputs": {"x": {"step": "first", "pointer": ""}}}, "in args and in"),
        ({"ability": "raed"}, 'uses the ability "raed", which is not available'),
        ({"skill": "nothing"}, 'uses the skill "nothing", which is not available'),
    ],
)
def test_step_with_an_unclear_or_unknown_target_is_refused(step, why):
    (only,) = errors(validate_plan(plan("first", {"id": "x", **step}), REGISTRY))
    assert (only.check, only.steps) == ("known_targets", ("x",))
    assert why in only.message


def test_pointer_into_an_output_that_is_not_declared_is_refused():
    made = plan(
        {"id": "a", "outputs": ["paths", "a/b"]},
        {"id": "b", "inputs": {"x": {"step": "a", "pointer": "/path/0"}}},
        {"id": "c", "inputs": {"x": {"step": "a", "pointer": "/a~1b"}, "y": {"step": "a", "pointer": ""}}},
    )
    assert found(made) == [("no_orphans", ("b", "a"))]


@given(sound_plans())
def test_every_message_names_its_steps_and_every_check_is_listed(made):
    for each in validate_plan({**made, "order": []}):
        assert each.check in CHECKS
        assert all(f'"{name}"' in each.message for name in each.steps[:5])


# --- plan_v1 ----------------------------------------------------------------------------------------------------------


def test_plan_v1_is_upcast_and_checked_alike():
    old = {
        "steps": [{"id": "a", "description": "", "depends_on": ["b"], "tags": "x"}, {"id": "b", "description": ""}],
        "risks": ["late"], "needs_advisor": True, "needs_scaffolder": True, "schema_version": "v1", "more": 1,
    }  # fmt: skip
    assert SCHEMAS.validator("plan_v1").violations(old) == ()
    new = upcast(old)
    assert SCHEMAS.validator("plan_v2").violations(new) == ()
    assert (new["risks"], new["needs_advisor"], new["needs_scaffolder"]) == (["late"], True, True)
    assert [step.get("depends_on") for step in new["steps"]] == [["b"], None]
    assert upcast(new) == new
    assert found(old) == []
    assert found({**old, "steps": [{"id": "a", "description": "", "depends_on": ["a"]}]}) == [("dag_acyclic", ("a",))]


OLD_STEPS = st.fixed_dictionaries(
    {
        "id": st.one_of(st.sampled_from(["", "a", "b", "x" * 257]), st.text(max_size=3)),
        "description": st.text(max_size=3),
    },
    optional={"depends_on": st.lists(st.sampled_from(["a", "b", ""]), max_size=2), "more": st.integers()},
)


@given(st.lists(OLD_STEPS, min_size=1, max_size=4), st.booleans())
def test_plan_v1_without_an_error_is_a_plan_v2(steps, scaffolder):
    old = {"steps": steps, "risks": [], "needs_advisor": False, "needs_scaffolder": scaffolder, "schema_version": "v1"}
    assert SCHEMAS.validator("plan_v1").violations(old) == ()
    assert found(old) or SCHEMAS.validator("plan_v2").violations(upcast(old)) == ()


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_id_of_a_plan_v1_that_plan_v2_does_not_allow_is_refused(name):
    old = {"steps": [{"id": name, "description": ""}], "risks": [], "needs_advisor": False, "schema_version": "v1"}
    assert found(old) == [("unique_ids", (name,))]


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [False, True])
def test_ten_thousand_steps_in_a_row_are_checked_without_recursion(closed):
    count = 10_000
    steps = [{"id": f"s{at}", "description": "", "depends_on": [f"s{at - 1}"] if at else []} for at in range(count)]
    if closed:
        steps[0]["depends_on"] = [f"s{count - 1}"]
    made = {"steps": steps, "risks": [], "needs_advisor": False, "schema_version": "v2"}
    assert [check for check, _ in found(made)] == (["dag_acyclic"] if closed else [])
    assert len(StepGraph.of(steps).groups) == (0 if closed else count)
