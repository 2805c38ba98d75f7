"""The compiler: which skills it includes, why it excludes others, and the plan that it makes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning import SCHEMAS

from deedbook import Skill
from deedbook.contract import Failed
from deedbook_flow_runcontext.compiler import (
    NO_SKILL,
    PLAN_REFUSED,
    CompilerSettings,
    PlanRefused,
    SkillCompiler,
    build_matcher,
)
from deedbook_flow_runcontext.plans import AbilityFacts
from deedbook_flow_runcontext.skill_catalogue import SkillCatalogue
from deedbook_flow_runcontext.validation import validate_plan

ABILITIES = {
    "file-find": AbilityFacts("read"),
    "file-count": AbilityFacts("read"),
    "git.commit": AbilityFacts("write"),
    "erase": AbilityFacts("write", frozenset({"destructive"})),
    "send": AbilityFacts("irreversible"),
}


def skill(name, *, allowed=(), requires=(), steps=None, triggers=()):
    metadata = {"requires": requires} if requires else {}
    if steps is not None:
        metadata["deedbook"] = {"steps": steps}
    return Skill(name, f"Does {name}.", "", frozenset(allowed), tuple(triggers), metadata, f"{name}/SKILL.md")


def compile_task(task, *skills, **settings):
    return SkillCompiler(SkillCatalogue.of(skills, ABILITIES), CompilerSettings(**settings)).compile(task)


def refuse(task, *skills, **settings):
    with pytest.raises(PlanRefused) as caught:
        compile_task(task, *skills, **settings)
    return caught.value


def names(rows):
    return [row["name"] for row in rows]


# --- what is included -------------------------------------------------------------------------------------------------


def test_matching_skills_are_included_with_reasons_and_run_side_by_side():
    plan = compile_task("alpha and the beta", skill("alpha"), skill("beta"), skill("gamma"))
    assert [(each["name"], each["reason"]) for each in plan["skills_included"]] == [
        ("alpha", 'the task names "alpha"'), ("beta", 'the task names "beta"'),
    ]  # fmt: skip
    assert plan["parallel_groups"] == [["alpha", "beta"]]
    assert plan["steps"][0] == {"id": "alpha", "description": "Does alpha.", "skill": "alpha", "depends_on": []}
    assert SCHEMAS.validator("plan_v2").violations(plan) == ()


def test_required_skills_are_included_before_those_that_require_them():
    plan = compile_task("top", skill("top", requires=["left", "right"]), skill("left", requires="base"),
                        skill("right", requires="base,"), skill("base"))  # fmt: skip
    assert plan["parallel_groups"] == [["base"], ["left", "right"], ["top"]]
    assert plan["order"] == ["base", "left", "right", "top"]
    reasons = {each["name"]: each["reason"] for each in plan["skills_included"]}
    assert (reasons["left"], reasons["base"]) == ('required by "top"', 'required by "left"')


def test_skill_with_a_missing_tool_is_excluded_and_the_tool_is_named():
    plan = compile_task("alpha beta", skill("alpha"), skill("beta", allowed=["file-find", "docker"]))
    assert plan["skills_excluded"] == [
        {"name": "beta", "reason": 'tools are missing: "docker" (it is not available)', "missing_tools": ["docker"]}
    ]
    assert names(plan["skills_included"]) == ["alpha"]


def test_tool_of_a_server_is_available_if_it_is_an_ability_in_scope():
    catalogue = SkillCatalogue.of([skill("alpha", allowed=["git.commit"])], ABILITIES)
    assert names(SkillCompiler(catalogue).compile("alpha")["skills_included"]) == ["alpha"]
    with pytest.raises(PlanRefused, match=r'"git.commit" \(it is not available\)') as caught:
        SkillCompiler(catalogue.restrict(["file-find"])).compile("alpha")
    assert caught.value.excluded[0]["missing_tools"] == ["git.commit"]


def test_skill_that_requires_an_excluded_or_unknown_one_is_excluded_with_the_cause():
    skills = skill("top", requires=["middle"]), skill("middle", requires=["low"]), skill("low", allowed=["docker"])
    refused = refuse("top", *skills)
    reasons = {each["name"]: each["reason"] for each in refused.excluded}
    assert refused.code == NO_SKILL
    assert (
        reasons["top"] == 'it requires "low", which cannot be used: tools are missing: "docker" (it is not available)'
    )
    unknown = refuse("top", skill("top", requires=["lwo"]), skill("low"))
    assert 'there is no skill of this name; did you mean "low"?' in str(unknown)


def test_requirement_of_an_excluded_skill_alone_is_not_included():
    plan = compile_task("top other", skill("top", requires=["base"], allowed=["docker"]), skill("base"), skill("other"))
    assert names(plan["skills_included"]) == ["other"]


def test_nothing_that_fits_is_an_error_with_its_code():
    refused = refuse("xyzzy", skill("alpha"))
    assert (refused.code, refused.included, refused.excluded) == (NO_SKILL, (), ())
    assert refuse("xyzzy", skill("alpha"), meta_skill="alpha").code == NO_SKILL


# --- the meta-skill ---------------------------------------------------------------------------------------------------


def test_meta_skill_is_included_first_with_what_it_requires():
    skills = skill("five", requires=["base"]), skill("base"), skill("alpha", requires=["base"])
    plan = compile_task("alpha", *skills, meta_skill="five")
    assert plan["parallel_groups"] == [["base"], ["five"], ["alpha"]]
    assert plan["skills_included"][1]["reason"] == "configured as the meta-skill"


@pytest.mark.parametrize("meta", [skill("five", allowed=["docker"]), skill("fife")])
def test_meta_skill_that_cannot_be_used_refuses_the_plan(meta):
    refused = refuse("alpha", skill("alpha"), meta, meta_skill="five")
    assert refused.code == PLAN_REFUSED
    assert str(refused).startswith('the meta-skill "five" cannot be used: ')


# --- steps of skills --------------------------------------------------------------------------------------------------

STEPS = [
    {"id": "find", "description": "Find", "ability": "file-find", "args": {"pattern": "*"}},
    {"id": "count", "description": "Count", "ability": "file-count",
     "inputs": {"paths": {"step": "find", "pointer": "/paths"}}},
    {"id": "tell", "description": "Tell", "depends_on": ["find"]},
]  # fmt: skip


def test_steps_of_a_skill_are_flattened_with_their_wiring():
    base = skill("base", allowed=["file-find", "file-count"], steps=STEPS)
    plan = compile_task("top", skill("top", requires=["base"]), base)
    by_id = {step["id"]: step for step in plan["steps"]}
    assert plan["parallel_groups"] == [["base/find"], ["base/count", "base/tell"], ["top"]]
    assert by_id["base/count"]["inputs"] == {"paths": {"step": "base/find", "pointer": "/paths"}}
    assert by_id["base/tell"]["skill"] == "base"
    assert by_id["top"]["depends_on"] == ["base/count", "base/tell"]


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([{"id": "x"}], "its metadata.deedbook.steps[0]"),
        ("x", "its metadata.deedbook.steps expected array"),
        ([{"id": "x", "description": "", "skill": "y"}], "use metadata.requires"),
        ([{"id": "x", "description": "", "ability": "erase"}], 'use "erase", which is not in its allowed-tools'),
    ],
)
def test_skill_with_unusable_steps_is_excluded_with_the_reason(steps, why):
    refused = refuse("alpha", skill("alpha", steps=steps))
    assert refused.code == NO_SKILL
    assert why in str(refused)


@pytest.mark.parametrize("requires", [5, [5], [""], {"a": 1}])
def test_requirements_of_a_wrong_form_exclude_the_skill(requires):
    assert "its metadata.requires is neither" in str(refuse("alpha", skill("alpha", requires=requires)))


@pytest.mark.parametrize(("ability", "tag"), [("erase", "destructive"), ("send", "irreversible")])
def test_steps_have_the_risky_tags_of_their_abilities(ability, tag):
    whole = compile_task("alpha", skill("alpha", allowed=[ability]))
    listed = compile_task(
        "alpha", skill("alpha", allowed=[ability], steps=[{"id": "x", "description": "", "ability": ability}])
    )
    assert whole["steps"][0]["tags"] == listed["steps"][0]["tags"] == [tag]


# --- refused plans ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skills", "check"),
    [
        ([skill("alpha", requires=["beta"]), skill("beta", requires=["alpha"])], "dag_acyclic"),
        ([skill("alpha", steps=[{"id": "x", "description": "", "depends_on": ["y"]}])], "no_orphans"),
        ([skill("alpha", steps=[{"id": "x", "description": ""}, {"id": "x", "description": ""}])], "unique_ids"),
        (
            [
                skill("alpha", allowed=["erase"], steps=[
                    {"id": "x", "description": "", "ability": "erase"},
                    {"id": "gate", "description": "", "tags": ["approval-gate"], "depends_on": ["x"]},
                ])
            ],
            "policy_consistency",
        ),
        (
            [
                skill("alpha", steps=[
                    {"id": "x", "description": "", "optional": True},
                    {"id": "y", "description": "", "inputs": {"a": {"step": "x", "pointer": ""}}},
                ])
            ],
            "optional_output_safety",
        ),
        ([skill("alpha", steps=[{"id": "x" * 256, "description": ""}])], "plan_v2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_plan_that_is_not_sound_is_refused_with_its_findings(skills, check):
    refused = refuse("alpha", *skills)
    assert refused.code == PLAN_REFUSED
    assert check in [each.check for each in refused.findings]
    assert refused.findings[0].message in str(refused)
    assert names(refused.included)[0] in ("alpha", "beta")


def test_unknown_matcher_is_refused():
    with pytest.raises(Failed, match='there is no matcher "embeddings"; use "keyword", "hashing"'):
        build_matcher(CompilerSettings(matcher="embeddings"), ())


# --- laws -------------------------------------------------------------------------------------------------------------


@given(st.data())
def test_compiled_plans_are_sound_and_the_same_for_every_order_of_the_skills(data):
    size = data.draw(st.integers(1, 10))
    made = []
    for number in range(size):
        earlier = data.draw(st.sets(st.sampled_from(range(number)), max_size=3)) if number else ()
        steps = STEPS if data.draw(st.booleans()) else None
        requires = [f"k{each}" for each in sorted(earlier)]
        made.append(skill(f"k{number}", requires=requires, steps=steps, allowed=["file-find", "file-count"]))
    task = " ".join(f"k{each}" for each in data.draw(st.sets(st.integers(0, size - 1), min_size=1)))
    plan = compile_task(task, *made)
    assert SCHEMAS.validator("plan_v2").violations(plan) == ()
    assert validate_plan(plan) == ()
    assert compile_task(task, *data.draw(st.permutations(made))) == plan
    assert {*task.split()} <= {*names(plan["skills_included"])}


def chain(count):
    return [skill(f"k{at}", requires=[f"k{at - 1}"] if at else []) for at in range(count)]


def test_thousands_of_skills_in_a_chain_are_compiled_without_recursion():
    assert compile_task("k4999", *chain(5_000))["order"] == [f"k{at}" for at in range(5_000)]


def test_plan_that_is_too_large_to_be_recorded_is_refused():
    refused = refuse("k9999", *chain(10_000))
    assert (refused.code, "more than 100000 nodes" in str(refused)) == (PLAN_REFUSED, True)
