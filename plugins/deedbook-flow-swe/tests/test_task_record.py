"""The record of a task: a fold of its events, the same however they come."""

import pytest
from stories import PHASES, Story, clean, reworked

from deedbook_flow_swe.task_record import TaskRecord


def test_record_has_what_the_events_say():
    record = clean("t1", tags=("http", "python")).record
    assert (record.task_id, record.tags, record.state, record.commit) == ("t1", ("http", "python"), "done", "c0ffee")
    assert list(record.phases) == list(PHASES)
    (run,) = record.phases["implementation"]
    assert (run.units, run.agent, len(run.contexts), run.calls) == (["u1", "u2"], "implementation-agent", 2, 2)
    assert (run.read, run.written) == (180, 20)


def test_facts_of_units_are_added():
    story = Story().begin("implementation", "u1")
    story.complete(
        "implementation", "u1", tests={"passed": 2, "failed": 1}, lint=1, coverage=0.9, criteria_verified=["a"]
    )
    story.begin("implementation", "u2")
    story.complete(
        "implementation", "u2", tests={"passed": 3, "failed": 0}, lint=0, coverage=0.8, criteria_verified=["b"]
    )
    assert dict(story.record.facts("implementation")) == {
        "tests": {"passed": 5, "failed": 1},
        "lint": 1,
        "coverage": 0.8,
        "criteria_verified": ["a", "b"],
    }


def test_facts_of_a_run_that_is_not_complete_do_not_count():
    story = clean().begin("verification")
    assert dict(story.record.facts("verification")) == {}


def test_move_through_a_phase_blames_the_one_that_can_mend_it():
    record = reworked().record
    assert [run.was_rolled_back for run in record.phases["implementation"]] == [True, False]
    assert [run.was_rolled_back for run in record.phases["verification"]] == [False, False]
    assert [(move.from_phase, move.cascade) for move in record.rollbacks] == [
        ("security", False),
        ("verification", True),
    ]


def test_several_tasks_of_a_session_do_not_mix():
    one, two = clean("one"), reworked("two")
    records = TaskRecord.all_from_events([*one.events, *two.events])
    assert [each.task_id for each in records] == ["one", "two"]
    assert records[0] == TaskRecord.from_events(one.events)
    assert TaskRecord.from_events([*one.events, *two.events], "two") == TaskRecord.from_events(two.events)


@pytest.mark.parametrize("task", ["", "three"])
def test_task_that_is_not_the_only_one_has_to_be_named(task):
    with pytest.raises(LookupError, match=r"\d tasks match"):
        TaskRecord.from_events([*clean("one").events, *clean("two").events], task)


def test_event_whose_payload_was_removed_says_nothing():
    story = clean()
    whole = story.record
    for event in story.events:
        if event.type == "swe.model_chosen":
            event.payload.clear()  # type: ignore[attr-defined]
    found = story.record
    assert [run.models for run in found.runs] == [[]] * len(found.runs)
    assert [run.completed for run in found.runs] == [run.completed for run in whole.runs]


def test_events_of_an_unknown_task_are_left_out():
    stray = Story("stray").passing("requirements")
    record = TaskRecord.from_events([*clean().events[:-1], *stray.events[1:]])
    assert record.state is None
    assert len(record.phases["requirements"]) == 1


def test_events_applied_one_by_one_give_the_same_record():
    story = reworked()
    first, *others = story.events
    record = TaskRecord.begin(first.payload, first.ts, story.record.session)
    for event in others:
        record.apply(event.type, event.payload, event.ts)
    assert record == story.record
