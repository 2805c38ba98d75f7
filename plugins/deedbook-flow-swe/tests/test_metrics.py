"""The eleven metrics: values of known tasks, laws, lines and sparklines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stories import PHASES, Story, clean, reworked

from deedbook.format.schema import Schemas, data_folder
from deedbook_flow_swe.learning.metrics import (
    BLOCKS,
    GAP,
    METRICS,
    build_line,
    compute_metrics,
    draw_sparkline,
    flatten,
    render_line,
    split_into,
)

SCHEMAS = Schemas.load(data_folder("schemas"))
LINE = SCHEMAS.validator("pipeline_metrics_v1")
NAMES = [
    "phase_rollback_rate", "iterations_per_phase", "rollback_cascade_rate", "human_escalation_rate",
    "spec_ambiguity_rate", "architecture_violation_rate", "security_finding_rate", "pattern_promotion_rate",
    "context_tokens_per_phase", "model_tier_distribution", "composite_reward_trend",
]  # fmt: skip


def unclear() -> Story:
    """Return a task that waits for a person, because its request leaves something open."""
    story = Story("unclear").begin("requirements")
    story.block("requirements", None, by="agent", missing=["the unit of the limit"])
    return story.add("swe.escalated", phase="requirements", issue="requirements::", reason="unclear")


def rewarded(story: Story, composite: int | None) -> Story:
    return story.add("swe.rewarded", reward={"composite_score": composite})


RECORDS = [
    clean().record,
    reworked("t2").record,
    unclear().record,
    rewarded(clean("t3"), 1).record,
    rewarded(reworked("t4"), -1).add("swe.pattern_promoted", pattern="p", kind="pattern", tasks=["t4"]).record,
]
VALUES = compute_metrics(RECORDS)


def test_metrics_have_the_names_of_the_seed():
    assert list(METRICS) == NAMES
    assert list(VALUES) == NAMES
    document = SCHEMAS.document("pipeline_metrics_v1")
    assert document["properties"]["metrics"]["required"] == NAMES


@pytest.mark.parametrize(
    ("name", "part", "expected"),
    [
        ("phase_rollback_rate", "implementation", 0.3333),
        ("phase_rollback_rate", "verification", 0.0),
        ("iterations_per_phase", "implementation", {"1": 2, "2": 2}),
        ("iterations_per_phase", "requirements", {"1": 5}),
        ("context_tokens_per_phase", "planning", 90.0),
        ("model_tier_distribution", "implementation", {"mid": 12}),
        ("security_finding_rate", "BLOCKER", 0.5),
    ],
)
def test_metric_of_each_phase(name, part, expected):
    assert VALUES[name][part] == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rollback_cascade_rate", 1.0),
        ("human_escalation_rate", 0.2),
        ("spec_ambiguity_rate", 0.2),
        ("architecture_violation_rate", 0.0),
        ("pattern_promotion_rate", 0.25),
        ("composite_reward_trend", {"composites": [1, -1], "mean": 0.0}),
    ],
)
def test_metric_of_all_tasks(name, expected):
    assert VALUES[name] == expected


def test_divergence_that_verification_finds_counts():
    story = Story().passing(*PHASES[:4]).begin("verification").block("verification", "criteria-verified")
    assert METRICS["architecture_violation_rate"]([story.record, clean().record]) == 0.5


def test_rate_without_any_case_is_unknown():
    empty = compute_metrics([])
    assert [each for each in empty.values() if not isinstance(each, dict)] == [None] * 5
    assert empty["composite_reward_trend"] == {"composites": [], "mean": None}


def test_trend_has_the_last_50_tasks():
    many = [rewarded(Story(f"t{number}"), number % 2).record for number in range(60)]
    trend = METRICS["composite_reward_trend"](many)
    assert len(trend["composites"]) == 50


@pytest.mark.parametrize("record", RECORDS)
def test_line_of_a_phase_matches_its_schema_and_is_one_line(record):
    line = build_line(record, "requirements", 1, "2026-11-22T10:00:00.000Z")
    assert not LINE.violations(line)
    text = render_line(line)
    assert text.count("\n") == 1
    assert json.loads(text) == line


@given(st.lists(st.sampled_from(RECORDS), max_size=8), st.randoms())
def test_order_of_records_changes_nothing_but_the_trend(records, random):
    shuffled = list(records)
    random.shuffle(shuffled)
    first, second = compute_metrics(records), compute_metrics(shuffled)
    del first["composite_reward_trend"], second["composite_reward_trend"]
    assert first == second


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=60))
def test_sparkline_has_one_sign_for_each_value(values):
    line = draw_sparkline(values)
    assert len(line) == len(values)
    assert [sign == GAP for sign in line] == [value is None for value in values]


def test_sparkline_shows_the_extremes():
    assert draw_sparkline([0, 0.5, 1, None]) == f"{BLOCKS[0]}{BLOCKS[4]}{BLOCKS[7]}{GAP}"
    assert draw_sparkline([3, 3]) == BLOCKS[0] * 2


@pytest.mark.parametrize(("count", "most", "sizes"), [(0, 5, []), (3, 5, [1, 1, 1]), (11, 5, [3, 3, 3, 2])])
def test_groups_keep_all_records(count, most, sizes):
    assert [len(each) for each in split_into([clean().record] * count, most)] == sizes


def test_flat_numbers_have_every_metric():
    assert {name for name, _ in flatten(VALUES)} == set(NAMES)
    assert flatten(VALUES)["iterations_per_phase", "implementation"] == 1.5
