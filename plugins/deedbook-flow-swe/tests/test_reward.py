"""Rewards: each dimension as a table, laws that hold for all tasks, and the form of the document."""

from itertools import product

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from stories import CRITERIA, PHASES, Story, clean, reworked

from deedbook.format.schema import Schemas, data_folder
from deedbook_flow_swe.learning.reward import DIMENSIONS, MAJORITY, compute_composite, compute_reward

NOW = "2026-11-22T10:00:00.000Z"
SCHEMA = Schemas.load(data_folder("schemas")).validator("reward_v1")
SCORES = st.sampled_from([None, -1, 0, 1])


def score(story: Story, dimension: str) -> int | None:
    return DIMENSIONS[dimension](story.record)


def with_facts(phase: str, **facts: object) -> Story:
    """Return a task without trouble, except that a phase reports other facts; ``None`` leaves one out."""
    story = clean()
    for event in story.events:
        if event.type == "swe.phase_completed" and event.payload["phase"] == phase:
            merged = {**event.payload["facts"], **facts}
            event.payload["facts"] = {name: each for name, each in merged.items() if each is not None}  # type: ignore[index]
    return story


def without_facts(story: Story) -> Story:
    for event in story.events:
        if event.type == "swe.phase_completed":
            event.payload["facts"] = {}  # type: ignore[index]
    return story


def sent_back(*sources: str) -> Story:
    """Return a task that each of the phases *sources* sends back to the one before it."""
    story = Story()
    for source in sources:
        before = PHASES[PHASES.index(source) - 1]
        story.passing(before).begin(source).block(source).back(source, before)
    return story.passing(*PHASES).end()


TABLE = [
    ("correctness", clean(), 1),
    ("correctness", with_facts("verification", tests={"passed": 3, "failed": 1}), -1),
    ("correctness", with_facts("integration", tests={"passed": 3, "failed": 1}), -1),
    ("correctness", with_facts("verification", criteria_verified=CRITERIA[:1]), 0),
    ("correctness", with_facts("requirements", criteria=None), 0),
    ("correctness", without_facts(clean()), None),
    ("spec_fidelity", clean(), 1),
    ("spec_fidelity", with_facts("verification", criteria_verified=[]), -1),
    ("spec_fidelity", with_facts("verification", criteria_verified=None), None),
    ("spec_fidelity", with_facts("requirements", criteria=[]), None),
    (
        "spec_fidelity",
        Story().passing(*PHASES[:4]).begin("verification").block("verification", "criteria-verified")
        .back("verification", "implementation", "criteria-verified").passing(*PHASES[3:]).end(),
        0,
    ),
    ("architectural_compliance", clean(), 1),
    ("architectural_compliance", with_facts("verification", architecture={"checked": 2, "violations": 1}), -1),
    ("architectural_compliance", with_facts("verification", architecture={"checked": 0, "violations": 0}), None),
    ("architectural_compliance", with_facts("verification", architecture=None), None),
    (
        "architectural_compliance",
        with_facts("security", findings=[{"severity": "MAJOR", "rule": "interface/changed", "place": "a.py:1"}]),
        -1,
    ),
    (
        "architectural_compliance",
        Story().passing(*PHASES[:4]).begin("verification").block("verification", "architecture-kept")
        .back("verification", "implementation", "architecture-kept").passing(*PHASES[3:]).end(),
        0,
    ),
    ("verification_cleanliness", clean(), 1),
    ("verification_cleanliness", reworked(), 0),
    ("verification_cleanliness", sent_back("verification", "security"), -1),
    ("verification_cleanliness", with_facts("verification", lint=2), 0),
    ("verification_cleanliness", sent_back("planning"), 1),
    ("verification_cleanliness", without_facts(clean()), None),
    ("phase_discipline", clean(), 1),
    ("phase_discipline", clean().end(), 1),
    (
        "phase_discipline",
        Story().begin("requirements").raw("tool.denied", kind="tool", name="x", code="TOOL_NOT_ALLOWED", reason="no"),
        0,
    ),
    (
        "phase_discipline",
        Story().begin("requirements").raw("tool.denied", kind="tool", name="x", code="GATE_DENIED", reason="budget"),
        1,
    ),
    (
        "phase_discipline",
        Story().begin("requirements").raw("tool.error", tool_name="x", code="PATH_REFUSED")
        .block("requirements", None, by="denied"),
        0,
    ),
    (
        "phase_discipline",
        Story().begin("requirements").block("requirements", None, by="denied")
        .begin("requirements").block("requirements", None, by="denied"),
        -1,
    ),
    ("phase_discipline", Story(), None),
    ("context_efficiency", clean(), 1),
    ("context_efficiency", Story().passing("requirements", rule="fallback:default"), 0),
    ("context_efficiency", Story().passing(*PHASES[:2], rule="fallback:default"), -1),
    ("context_efficiency", Story(), None),
    ("rollback_stability", clean(), 1),
    ("rollback_stability", with_facts("integration", regressions=1), -1),
    ("rollback_stability", with_facts("integration", regressions=None), None),
    ("rollback_stability", sent_back("integration"), 0),
    ("maintainability", clean(), 1),
    ("maintainability", with_facts("integration", coverage_delta=0), 0),
    ("maintainability", with_facts("integration", coverage_delta=-0.01), -1),
    ("maintainability", with_facts("verification", lint=1), 0),
    ("maintainability", with_facts("integration", coverage_delta=None), None),
]  # fmt: skip


@for_each(("dimension", "story", "expected"), TABLE)
def test_dimension_follows_from_verified_facts(dimension, story, expected):
    assert score(story, dimension) == expected


def test_table_has_every_value_of_every_dimension():
    seen = {(dimension, expected) for dimension, _, expected in TABLE}
    assert seen == set(product(DIMENSIONS, [None, -1, 0, 1]))


def test_estimate_is_no_count_of_a_provider():
    story = clean()
    for event in story.events:
        if event.type == "swe.context_assembled":
            event.payload["counted"] = "estimate"  # type: ignore[index]
    assert score(story, "context_efficiency") is None


def test_tokens_that_providers_report_are_a_count():
    story = with_facts("integration", tokens={"read": 90, "written": 10})
    for event in story.events:
        if event.type == "swe.context_assembled":
            event.payload["counted"] = "estimate"  # type: ignore[index]
    assert score(story, "context_efficiency") == 1


def test_denial_of_the_runner_and_of_the_door_counts_once():
    story = Story().begin("requirements")
    story.raw("tool.denied", kind="tool", name="x", code="TOOL_NOT_ALLOWED", reason="no")
    story.add(
        "swe.denied", phase="requirements", iteration=1, unit=None, agent="a", ability="x", code="TOOL_NOT_ALLOWED",
        reason="no",
    )  # fmt: skip
    assert story.record.runs[0].violations == 1


def test_context_over_its_budget_counts():
    story = clean()
    story.add(
        "swe.context_assembled", phase="retrospective", iteration=1, unit=None, tokens=101, counted="provider",
        budget=100, parts=[], left_out=[],
    )  # fmt: skip
    assert score(story, "context_efficiency") == 0


# --- laws -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["clean", "back", "denied", "escalated"]), max_size=6))
def test_nothing_but_door_and_provider_scores_without_facts_of_tools(steps):
    story = Story()
    for step, phase in zip(steps, PHASES[1:], strict=False):
        story.begin(phase)
        if step == "back":
            story.block(phase).back(phase, phase)
        elif step == "denied":
            story.raw("tool.denied", kind="tool", name="x", code="TOOL_NOT_ALLOWED", reason="no")
        elif step == "escalated":
            story.add("swe.escalated", phase=phase, issue="i", reason="r")
        story.complete(phase)
    reward = compute_reward(without_facts(story.end()).record, NOW)
    known = {name for name, each in reward["reward_decomposition"].items() if each == 1}
    assert known <= {"phase_discipline", "context_efficiency"}
    assert reward["composite_score"] is None
    assert not reward["tool_verified"]


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_more_trouble_never_scores_higher(failed, more, denied, further):
    def story(failures: int, denials: int) -> Story:
        made = with_facts(
            "verification", tests={"passed": 4, "failed": failures}, lint=failures,
            architecture={"checked": 3, "violations": failures},
        )  # fmt: skip
        end = made.events.pop()
        for _ in range(denials):
            made.raw("tool.denied", kind="tool", name="x", code="TOOL_NOT_ALLOWED", reason="no")
        made.events.append(end)
        return made

    better = compute_reward(story(failed, denied).record, NOW)
    worse = compute_reward(story(failed + more, denied + further).record, NOW)
    for name, value in better["reward_decomposition"].items():
        assert value >= worse["reward_decomposition"][name]
    assert better["composite_score"] >= worse["composite_score"]


@given(st.fixed_dictionaries(dict.fromkeys(DIMENSIONS, SCORES)), st.sampled_from(sorted(DIMENSIONS)), st.booleans())
def test_composite_never_falls_if_a_known_dimension_rises(scores, risen, failed):
    if scores[risen] in (None, 1):
        return
    before = compute_composite(scores, failed=failed)
    after = compute_composite({**scores, risen: scores[risen] + 1}, failed=failed)
    assert (before is None) == (after is None)
    assert before is None or after >= before


@given(st.fixed_dictionaries(dict.fromkeys(DIMENSIONS, SCORES)))
def test_composite_of_1_needs_a_majority_and_nothing_bad(scores):
    values = list(scores.values())
    composite = compute_composite(scores)
    if composite == 1:
        assert values.count(1) >= MAJORITY
        assert -1 not in values
        assert scores["correctness"] is not None
    if values.count(None) > len(values) - MAJORITY:
        assert composite is None


def test_failed_task_is_never_worth_more_than_minus_1():
    assert compute_composite(dict.fromkeys(DIMENSIONS, 1), failed=True) == -1


# --- the document -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", [clean(), reworked(), Story(), sent_back("integration"), without_facts(clean())])
def test_reward_matches_its_schema(story):
    assert not SCHEMA.violations(compute_reward(story.record, NOW))


def test_rework_is_attributed_to_the_phase_that_caused_it():
    reward = compute_reward(reworked().record, NOW)
    assert reward["failure_attribution"] == {
        "phase": "implementation",
        "agent": "implementation-agent",
        "cause": "it failed",
        "issue": "security:token-in-query:",
        "resolution": "run 2 of implementation passed its gate",
    }
    assert reward["phase_health"]["implementation"] == {
        "iterations": 2,
        "outcome": "rollback",
        "cause": "security:token-in-query:",
    }
    assert reward["phase_health"]["verification"]["outcome"] == "clean"
    assert (reward["phases_rolled_back"], reward["rollback_count"]) == (["implementation"], 1)
    assert reward["composite_score"] == 1
    assert reward["failure_verified"]


def test_clean_task_has_no_failure():
    reward = compute_reward(clean().record, NOW)
    assert reward["failure_attribution"] is None
    assert set(reward["reward_decomposition"].values()) == {1}
    assert reward["model_tiers_used"] == dict.fromkeys(PHASES, "mid")
    assert (reward["tool_verified"], reward["integration_verified"], reward["failure_verified"]) == (True, True, False)


def test_only_the_unit_that_was_found_wrong_is_faulty():
    story = Story().passing(*PHASES[:4]).begin("verification").block("verification", unit="u2")
    story.back("verification", "implementation")
    run = story.record.phases["implementation"][0]
    assert [run.is_faulty(choice) for choice in run.models] == [False, True]


def test_schema_has_what_the_seed_demands():
    document = Schemas.load(data_folder("schemas")).document("reward_v1")
    assert set(document["required"]) >= {
        "task_id", "timestamp", "composite_score", "reward_decomposition", "phase_health", "failure_attribution",
        "context_tags", "model_tiers_used", "tool_verified", "phases_rolled_back", "rollback_count",
    }  # fmt: skip
    assert set(document["properties"]["reward_decomposition"]["required"]) == set(DIMENSIONS)
