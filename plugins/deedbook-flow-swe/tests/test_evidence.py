"""Evidence about patterns: what is enough to promote one, what never counts, and the files of ``world/``."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.schema import Schemas, data_folder
from deedbook.workspace.documents import parse_front_matter, parse_yaml
from deedbook_flow_swe.learning import world
from deedbook_flow_swe.learning.evidence import (
    ANTI_PATTERN,
    PATTERN,
    Criteria,
    Mention,
    PatternEvidence,
    assess,
    is_confirmed,
)
from deedbook_flow_swe.learning.workspace_events import MAX_ROWS, _limit

SCHEMA = Schemas.load(data_folder("schemas")).validator("pattern_evidence_v1")
FILE = Schemas.load(data_folder("schemas")).validator("pattern_evidence_v2")
MENTION = Mention(pattern="p", kind=PATTERN, title="A | pattern\nof two lines", text="Why.\n", proposed=True)


def row(task: str, composite: int | None = 1, **more: Any) -> dict[str, Any]:
    return {
        "task_id": task,
        "session": "s",
        "composite_score": composite,
        "tool_verified": True,
        "integration_verified": False,
        "failure_verified": False,
        "context_tags": ["python"],
        "generated": False,
        **more,
    }


def judge(rows: list[dict[str, Any]], kind: str = PATTERN, **more: Any) -> PatternEvidence:
    found = assess("p", kind, rows, Criteria(), **more)
    assert not SCHEMA.violations(found.as_json())
    assert PatternEvidence.parse(found.as_json()) == found
    return found


GOOD = [row("a"), row("b", integration_verified=True), row("c")]
FAILED = [row("a", failure_verified=True), row("b", -1, failure_verified=True)]


@pytest.mark.parametrize(
    ("rows", "state", "reason"),
    [
        ([], "accumulating", "0 of 3 tasks"),
        (GOOD[:2], "accumulating", "2 of 3 tasks"),
        (GOOD, "proposable", "3 tasks, all with a composite of 1, 1 verified by integration"),
        ([row("a"), row("b"), row("c")], "accumulating", "integration verified 0 of 1 tasks"),
        ([*GOOD, row("d", 0)], "refuted", "the composite of d is not 1"),
        ([*GOOD, row("d", -1)], "refuted", "the composite of d is not 1"),
        ([*GOOD, row("d", None)], "accumulating", "no tool verified d"),
        ([*GOOD, row("d", tool_verified=False)], "accumulating", "no tool verified d"),
        ([*GOOD[:2], row("c", generated=True)], "accumulating", "2 of 3 tasks"),
        ([*GOOD, row("d", -1, generated=True)], "proposable", "3 tasks"),
        ([*GOOD[:2], GOOD[0]], "accumulating", "2 of 3 tasks"),
        ([row("a", 0), *GOOD], "proposable", "3 tasks"),
    ],
)
def test_pattern_needs_three_good_tasks_and_one_verified_by_integration(rows, state, reason):
    found = judge(rows)
    assert found.state == state
    assert reason in found.reason


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([], "accumulating"),
        (FAILED[:1], "accumulating"),
        (FAILED, "proposable"),
        ([FAILED[0], row("b", -1)], "accumulating"),
        ([FAILED[0], row("b", failure_verified=True, generated=True)], "accumulating"),
    ],
)
def test_anti_pattern_needs_two_verified_failures(rows, state):
    assert judge(rows, ANTI_PATTERN).state == state


def test_promoted_pattern_stays_promoted_until_a_task_contradicts_it():
    assert judge(GOOD, promoted=True).state == "promoted"
    assert judge([*GOOD, row("d", 0)], promoted=True).state == "refuted"


def test_proposal_is_confirmed_only_with_enough_evidence():
    enough, little = judge(GOOD), judge(GOOD[:2])
    assert is_confirmed(enough, MENTION)
    assert not is_confirmed(little, MENTION)
    assert not is_confirmed(enough, Mention.parse({**MENTION.as_json(), "proposed": False}))
    assert not is_confirmed(enough, Mention.parse({**MENTION.as_json(), "kind": ANTI_PATTERN}))


ROWS = st.builds(
    row,
    st.sampled_from("abcdefgh"),
    st.sampled_from([None, -1, 0, 1]),
    tool_verified=st.booleans(),
    integration_verified=st.booleans(),
    failure_verified=st.booleans(),
    generated=st.booleans(),
)


@given(st.lists(ROWS, max_size=10), st.lists(ROWS, max_size=5), st.sampled_from([PATTERN, ANTI_PATTERN]))
def test_generated_tasks_change_nothing(rows, more, kind):
    generated = [{**each, "generated": True} for each in more]
    assert judge([*rows, *generated], kind) == judge(rows, kind)


@given(st.lists(ROWS, max_size=10, unique_by=lambda each: each["task_id"]), st.randoms())
def test_order_of_different_tasks_does_not_matter(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    for kind in (PATTERN, ANTI_PATTERN):
        assert judge(rows, kind).state == judge(shuffled, kind).state


@given(st.lists(ROWS, max_size=10))
def test_pattern_with_a_worse_task_is_never_proposable(rows):
    found = judge(rows)
    if found.state == "proposable":
        assert len(found.rows) >= 3
        assert {each["composite_score"] for each in found.rows} == {1}
        assert any(each["integration_verified"] for each in found.rows)


@given(st.lists(st.sampled_from([0, 1]), max_size=40))
def test_rows_that_a_decision_sees_keep_a_contradiction(composites):
    rows = [row(str(number), composite) for number, composite in enumerate(composites)]
    kept = _limit(rows)
    assert len(kept) <= MAX_ROWS
    assert (0 in composites) == (0 in [each["composite_score"] for each in kept])


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"id": "p", "kind": "pattern", "title": " T ", "text": "x" * 9000, "tags": []}, ("p", "T", 8000)),
        ({"id": "p", "kind": "anti-pattern", "title": "T" * 300, "text": ""}, ("p", "T" * 200, 0)),
        ({"id": "../p", "kind": "pattern", "title": "T", "text": ""}, None),
        ({"id": "p", "kind": "habit", "title": "T", "text": ""}, None),
        ({"id": "p", "kind": ["pattern"], "title": "T", "text": ""}, None),
        ({"id": "p", "kind": "pattern", "title": " ", "text": ""}, None),
        ({"id": "p", "kind": "pattern", "title": "T", "text": None}, None),
        ({"id": "p"}, None),
        ("p", None),
    ],
)
def test_proposal_is_read_or_left_out(row, found):
    mention = Mention.read(row)
    assert (mention and (mention.pattern, mention.title, len(mention.text))) == found


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_of_a_pattern_can_be_read_again():
    evidence = judge(GOOD)
    text = world.render_pattern(evidence, MENTION)
    front, _ = parse_front_matter(text.encode(), "pattern.md")
    assert front.value["tasks"] == ["a", "b", "c"]
    assert front.value["title"] == MENTION.title
    assert "# A | pattern of two lines\n\nWhy.\n" in text
    shown = parse_yaml(world.render_evidence(evidence, MENTION).encode(), "evidence.yaml").value
    assert not FILE.violations(shown)
    assert shown == {**evidence.as_json(), "schema_version": "v2", "title": MENTION.title, "tags": list(evidence.tags)}
    assert evidence.tags


def test_routing_in_force_says_where_it_comes_from():
    text = world.render_routing({"id": "default", "ladder": ["a"], "phases": {}}, 7)
    assert text.startswith("# The policy in force, from event 7 of the workspace ledger.")
    assert parse_yaml(text.encode(), "routing.yaml").value == {"id": "default", "ladder": ["a"], "phases": {}}


def test_rewards_of_an_agent_are_a_table():
    reward = {"task_id": "t1", "composite_score": None, "phase_health": {"planning": {"iterations": 2, "outcome": "x"}}}
    text = world.render_agent_rewards("planner", [(reward, "planning"), ({**reward, "task_id": "a|b"}, "security")])
    assert "| t1 | planning | null | 2 | x |  |\n" in text
    assert "| a\\|b | security | null | null | null |  |\n" in text


def test_rewards_of_an_agent_keep_the_last_rows_of_other_tasks_and_replace_their_own():
    text = ""
    for number in (*range(60), 59):
        reward = {"task_id": f"t{number}", "composite_score": number % 2, "phase_health": {}}
        text = world.render_agent_rewards("planner", [(reward, "planning")], text)
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| t") and "| task" not in line]
    assert rows == [f"| t{number}" for number in range(10, 60)]


@pytest.mark.parametrize("kind", [PATTERN, ANTI_PATTERN])
def test_paths_differ_by_kind(kind):
    folder = "verified-patterns" if kind == PATTERN else "anti-patterns"
    assert world.pattern_path(kind, "p") == f"world/{folder}/p.md"
    assert world.evidence_path(PATTERN, "p") != world.evidence_path(ANTI_PATTERN, "p")
