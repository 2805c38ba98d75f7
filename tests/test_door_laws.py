"""Laws of the door, tried with what nobody thought of: any value, any answer of gates, any shape of nested calls."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deedbook import Decision, Err, Failed, Ok
from deedbook.format.canonical import decode, encode

FEW = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=5)
    | st.just({"$sealed": "0" * 64, "size": 1})
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4),
    max_leaves=12,
)
answers = st.sampled_from(["allow", "ask", "deny", "transform", "nonsense", "raise", "nothing"])


def outcomes(events):
    """Return, for each intent, the types of its outcomes."""
    intents = [event.span for event in events if event.type == "tool.call"]
    ends = [(event.parent, event.type) for event in events if event.type in ("tool.result", "tool.error")]
    return {span: [kind for parent, kind in ends if parent == span] for span in intents}


@pytest.fixture
def echoing(lab):
    """Begin a session with a tool that gives back what it takes; the values to come are put into a list."""
    gives: list[Any] = []
    lab.tool("echo", lambda args, ctx: args)
    lab.tool("give", lambda args, ctx: gives.pop())
    return lab, lab.session(), gives


def test_any_arguments_are_recorded_exactly_or_refused(echoing):
    lab, session, _ = echoing

    @FEW
    @given(values)
    def law(value):
        before = lab.verify().events
        got = session.call("echo", {"value": value})
        events = lab.events()[before:]
        if isinstance(got, Ok):
            assert [event.type for event in events] == ["tool.call", "tool.result"]
            assert events[0].payload["args"] == got.value == decode(encode({"value": value}))
        else:
            assert [event.type for event in events] == ["tool.denied"]
            assert got.error.code == events[0].payload["code"] == "INTAKE_REFUSED"

    law()
    assert lab.verify().sound


def test_any_result_is_recorded_exactly_or_is_a_failure(echoing):
    lab, session, gives = echoing

    @FEW
    @given(values)
    def law(value):
        before = lab.verify().events
        gives.append(value)
        got = session.call("give", {})
        intent, outcome = lab.events()[before:]
        assert outcome.parent == intent.span
        if isinstance(got, Ok):
            assert outcome.payload["result"] == got.value == decode(encode(value))
        else:
            assert (outcome.type, outcome.payload["outcome"]) == ("tool.error", "failed")

    law()
    assert lab.verify().sound


def test_whatever_gates_answer_the_most_conservative_answer_binds(lab):
    said: dict[str, str] = {}

    def answer(name):
        def gate(call):
            outcome = said[name]
            if outcome == "raise":
                raise ValueError(name)
            args = {"n": call.args["n"] + 1} if outcome == "transform" else None
            return None if outcome == "nothing" else Decision(outcome, args=args)

        return gate

    lab.tool("act", lambda args, ctx: args)
    for name in ("h1", "h2"):
        lab.hook(name, "PreToolUse", answer(name))
    lab.hook("r", "PreToolUse", answer("r"), rewrites=True)
    lab.policy("p", answer("p"))
    session = lab.session()

    @FEW
    @given(answers, answers, answers, answers)
    def law(rewriter, first, second, policy):
        said.update(r=rewriter, h1=first, h2=second, p=policy)
        fits = {"r": {"allow", "ask", "deny", "transform"}, "h1": {"allow", "ask", "deny"}}
        meant = [said[name] if said[name] in fits.get(name, fits["h1"]) else "deny" for name in ("r", "h1", "h2", "p")]
        got = session.call("act", {"n": 0})
        if "deny" in meant:
            assert got.error.code == "GATE_DENIED"
        elif "ask" in meant:
            assert got.error.code == "NEEDS_HUMAN"
        else:
            assert got == Ok({"n": 1 if rewriter == "transform" else 0})

    law()
    report = lab.verify()
    events = lab.events()
    assert report.sound
    counted = Counter(event.type for event in events)
    assert counted["tool.call"] == counted["tool.result"]
    assert counted["tool.call"] + counted["tool.denied"] == counted["hook.fired"]


trees = st.recursive(
    st.sampled_from(["leaf", "fail", "unknown", "swallow"]),
    lambda inner: st.lists(inner, min_size=1, max_size=3),
    max_leaves=8,
)


def test_calls_nested_in_any_shape_are_one_tree_with_one_outcome_each(lab):
    def walk(args, ctx):
        shape = args["shape"]
        if shape == "fail":
            raise Failed("OWN", "as told")
        if isinstance(shape, str):
            return shape
        done = []
        for each in shape:
            try:
                done.append(ctx.call("unknown" if each == "unknown" else "walk", {"shape": each}))
            except Failed as problem:
                if "swallow" not in shape:
                    raise
                done.append(problem.code)
        return done

    lab.tool("walk", walk, uses=["walk"])
    session = lab.session()

    @FEW
    @given(trees)
    def law(shape):
        before = lab.verify().events
        got = session.call("walk", {"shape": shape})
        events = lab.events()[before:]
        ends = outcomes(events)
        assert all(len(kinds) == 1 for kinds in ends.values())
        assert isinstance(got, Err) == (next(iter(ends.values())) == ["tool.error"])
        spans = {event.span for event in events}
        assert [event for event in events if event.parent not in spans] == events[:1]

    law()
    assert session.door.open == {}
    assert lab.verify().sound
