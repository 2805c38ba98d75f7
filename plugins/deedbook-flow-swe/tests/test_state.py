"""The state machine of a task: whatever happens, a task ends, goes on, or waits for a person."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook_flow_swe.running.state import AWAITING_HUMAN, DONE, ROLLED_BACK, IllegalMove, PipelineState
from deedbook_flow_swe.running.unit_run import order_units

PHASES = ("requirements", "architecture", "planning", "implementation", "verification", "security")
MOVES = st.lists(st.sampled_from(["complete", "block a", "block b", "review", "go-on", "rework", "stop"]), max_size=60)


def begin(passes_on=("verification",), escalate_after=3):
    return PipelineState.begin(PHASES, passes_on=frozenset(passes_on), escalate_after=escalate_after)


def play(moves):
    """Yield each state and the moves back before it; a move that is not legal at the time is left out."""
    state, waits = begin(), False
    for move in moves:
        if state.has_ended:
            return
        back = ()
        if state.state == AWAITING_HUMAN:
            if move not in ("go-on", "rework", "stop"):
                continue
            state, back = state.answer(move)
            waits = (
                state.state == state.phase.upper()
                and move == "go-on"
                and state.history[state.phase].status == "in_progress"
            )
        elif move in ("go-on", "rework", "stop"):
            continue
        else:
            state = state if waits else state.start("now")
            waits = False
            if move == "complete":
                state = state.complete("now")
            elif move == "review":
                state = state.review("issue", "why")
            else:
                state, back = state.block(f"{state.phase}:{move}:", "why")
        yield state, back


@given(MOVES)
def test_every_state_is_a_phase_or_one_of_the_exceptional_ones(moves):
    for state, _ in play(moves):
        exceptional = {DONE, ROLLED_BACK, AWAITING_HUMAN, "HALTED"}
        assert state.state in exceptional | {state.phase.upper()}


@given(MOVES)
def test_move_back_goes_to_the_phase_before_and_stops_where_it_can_be_mended(moves):
    for state, back in play(moves):
        for each in back:
            assert PHASES.index(each.to_phase) == PHASES.index(each.from_phase) - 1
        assert [each.cascade for each in back] == [False, True][: len(back)] or len(back) > 2
        if back:
            assert state.phase == back[-1].to_phase
            assert state.phase not in state.passes_on
            assert state.history[state.phase].rollbacks


@given(MOVES)
def test_no_issue_is_blocked_three_times_without_a_person(moves):
    for state, back in play(moves):
        assert all(count <= state.escalate_after for count in state.blocks.values())
        assert all(each.count < state.escalate_after for each in back)


@given(MOVES)
def test_counts_only_grow(moves):
    before = None
    for state, _ in play(moves):
        if before is not None:
            for phase in PHASES:
                assert state.history[phase].iterations >= before.history[phase].iterations
                assert state.history[phase].rollbacks >= before.history[phase].rollbacks
        before = state


def test_first_phase_waits_for_a_person_at_once():
    state, back = begin().start("now").block("requirements:agent:", "why")
    assert (state.state, back) == (AWAITING_HUMAN, ())


def test_move_that_the_machine_does_not_have_is_refused():
    with pytest.raises(IllegalMove, match="has not begun"):
        begin().complete("now")
    with pytest.raises(IllegalMove, match="not BLOCKED_AWAITING_HUMAN"):
        begin().answer("go-on")


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ([("a", []), ("b", [])], "ab"),
        ([("a", ["b"]), ("b", [])], "ba"),
        ([("c", ["a"]), ("b", []), ("a", [])], "bac"),
    ],
)
def test_units_are_ordered_by_dependency_and_otherwise_as_listed(units, expected):
    ordered = order_units([{"id": name, "depends_on": needed} for name, needed in units])
    assert "".join(each["id"] for each in ordered) == expected


@pytest.mark.parametrize(
    ("units", "why"),
    [
        ([("a", ["b"]), ("b", ["a"])], "circle"),
        ([("a", ["x"])], "no unit x"),
        ([("a", []), ("a", [])], "same id"),
    ],
)
def test_units_without_an_order_are_refused(units, why):
    with pytest.raises(ValueError, match=why):
        order_units([{"id": name, "depends_on": needed} for name, needed in units])
