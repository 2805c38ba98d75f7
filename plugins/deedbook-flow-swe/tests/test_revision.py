"""Revisions of a routing policy: the rule, what it never does, and that it is the same for the same data."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stories import PHASES, Story, clean, reworked
from test_routing_choice import DOCUMENT

from deedbook_flow_swe.learning.revision import TierCount, count_tiers, find_in_force, revise, select_evidence
from deedbook_flow_swe.learning.routing import RoutingPolicy, digest_policy

TERMS = {"tasks": 2, "runs": 10, "raise_at": 25, "lower_at": 5}
POLICY = RoutingPolicy.parse({**DOCUMENT, "revision": TERMS})


def count(runs: int, sent_back: int, *, phase: str = "security", rule: str = "default", tier: str = "mid") -> TierCount:
    return TierCount(phase=phase, rule=rule, tier=tier, runs=runs, sent_back=sent_back)


def tiers(counts: list[TierCount], policy: RoutingPolicy = POLICY) -> dict[str, str]:
    _, changes = revise(policy, counts)
    return {f"{each.phase}/{each.rule}": f"{each.from_tier}→{each.to_tier}" for each in changes}


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([], {}),
        ([count(9, 9)], {}),
        ([count(10, 2)], {}),
        ([count(12, 3)], {"security/default": "mid→premium"}),
        ([count(20, 1)], {"security/default": "mid→cheap"}),
        ([count(20, 2)], {}),
        ([count(20, 0), count(10, 5, tier="cheap")], {}),
        ([count(20, 0), count(9, 9, tier="cheap")], {"security/default": "mid→cheap"}),
        ([count(10, 10, rule="owasp", tier="premium")], {}),
        ([count(10, 10, rule="owasp", tier="mid")], {}),
        ([count(10, 10, rule="fallback:default", tier="mid")], {}),
        ([count(10, 0, phase="requirements", tier="cheap")], {}),
        (
            [count(10, 5, phase="implementation", rule="simple", tier="cheap")],
            {"implementation/simple": "cheap→mid"},
        ),
        ([count(10, 10, phase="unknown")], {}),
    ],
)
def test_tier_follows_the_share_of_runs_that_were_sent_back(counts, expected):
    assert tiers(counts) == expected


def test_run_that_finds_a_fault_of_an_earlier_phase_is_not_counted_as_sent_back():
    found = {(each.phase, each.sent_back) for each in count_tiers([reworked().record]) if each.sent_back}
    assert found == {("implementation", 2)}


def test_run_whose_own_output_is_wrong_counts_for_its_phase():
    story = Story().passing(*PHASES[:5]).begin("security").block("security", "auth-paths").back("security", "security")
    story.events[-1].payload["issue"] = "security:auth-paths:"
    story.passing(*PHASES[5:]).end()
    assert {(each.phase, each.sent_back) for each in count_tiers([story.record]) if each.sent_back} == {("security", 1)}


def test_data_lowers_no_tier_unless_the_policy_says_so():
    policy = RoutingPolicy.parse({**DOCUMENT, "revision": {"raise_at": 25}})
    assert tiers([count(100, 0)], policy) == {}


def test_revised_policy_differs_only_in_the_tiers_of_its_changes():
    document, changes = revise(
        POLICY, [count(10, 9), count(10, 5, phase="implementation", rule="simple", tier="cheap")]
    )
    assert len(changes) == 2
    assert document["phases"]["security"]["tier"] == "premium"
    assert document["phases"]["implementation"]["rules"][1]["tier"] == "mid"
    expected: Any = {**POLICY.document, "phases": dict(POLICY.document["phases"])}
    expected["phases"]["security"] = {**expected["phases"]["security"], "tier": "premium"}
    rules = [dict(each) for each in expected["phases"]["implementation"]["rules"]]
    rules[1]["tier"] = "mid"
    expected["phases"]["implementation"] = {**expected["phases"]["implementation"], "rules": rules}
    assert document == expected
    assert POLICY.document["phases"]["security"]["tier"] == "mid"


COUNTS = st.lists(
    st.builds(
        lambda phase, rule, tier, runs, share: count(runs, runs * share // 10, phase=phase, rule=rule, tier=tier),
        st.sampled_from([*DOCUMENT["phases"], "other"]),
        st.sampled_from(["default", "auth", "simple", "owasp", "new", "domain"]),
        st.sampled_from(["cheap", "mid", "premium"]),
        st.integers(1, 40),
        st.integers(0, 10),
    ),
    max_size=12,
    unique_by=lambda each: (each.phase, each.rule, each.tier),
)


@given(COUNTS)
def test_revision_is_deterministic_and_moves_one_step(counts):
    document, changes = revise(POLICY, counts)
    assert revise(POLICY, list(reversed(counts))) == (document, changes)
    ladder = POLICY.ladder
    assert all(abs(ladder.index(each.to_tier) - ladder.index(each.from_tier)) == 1 for each in changes)
    assert bool(changes) == (digest_policy(document) != POLICY.digest)


@given(COUNTS)
def test_only_enough_data_about_the_present_tier_is_a_reason(counts):
    known = {(each.phase, each.rule, each.tier): each for each in counts}
    for change in revise(POLICY, counts)[1]:
        assert known[change.phase, change.rule, change.from_tier].runs >= TERMS["runs"]


def test_runs_that_rules_refuse_count_as_sent_back():
    blocked = Story().passing(*PHASES[:3]).begin("implementation", "u1").begin("implementation", "u2")
    blocked.block("implementation", unit="u2").end("failed")
    found = {each.phase: (each.runs, each.sent_back) for each in count_tiers([blocked.record])}
    assert found["implementation"] == (2, 1)


def test_missing_input_is_not_the_fault_of_a_tier():
    story = Story().begin("requirements").block("requirements", None, by="input").end("failed")
    (found,) = count_tiers([story.record])
    assert found.sent_back == 0


def test_tasks_that_have_not_ended_do_not_count():
    assert count_tiers([Story().passing("requirements").record]) == []


def test_evidence_leaves_out_generated_tasks_and_other_pipelines():
    records = [clean("a").record, clean("b", generated=True).record, reworked("c").record, Story("d").record]
    records[2].pipeline = "other"
    assert [each.task_id for each in select_evidence(records, "swe", generated=False)] == ["a"]
    assert [each.task_id for each in select_evidence(records, "swe", generated=True)] == ["a", "b"]


def test_revision_holds_only_for_the_policy_that_it_revised():
    revision = {"base": digest_policy(DOCUMENT), "policy": POLICY.document, "seq": 3, "digest": POLICY.digest}
    assert find_in_force(DOCUMENT, revision) == (POLICY.document, 3)
    assert find_in_force({**DOCUMENT, "title": "edited"}, revision)[1] is None
    assert find_in_force(DOCUMENT, None) == (DOCUMENT, None)
