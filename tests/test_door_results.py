"""What comes back through the door: whatever a handler does, there is an outcome, and what is handed on is checked."""

import time
from typing import Any

import pytest

from deedbook import Err, Failed, Ok
from deedbook.format.canonical import MAX_BYTES

NUMBER = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


def answer(lab, function, **more):
    """Call a tool made of *function* in a session of its own; return what the caller got."""
    lab.tool("act", function, **more)
    with lab.session() as session:
        return session.call("act", {})


# --- failures ---------------------------------------------------------------------------------------------------------


def test_own_failure_is_recorded_with_its_code(lab):
    def act(args, ctx):
        raise Failed("NO_SUCH_FILE", "a.txt is not there", retryable=True)

    got = answer(lab, act)
    assert (got.error.code, got.error.retryable) == ("NO_SUCH_FILE", True)
    assert lab.payload("tool.error") == {
        "tool_name": "act",
        "code": "NO_SUCH_FILE",
        "message": "a.txt is not there",
        "outcome": "failed",
        "retryable": True,
    }


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "problem",
    [
        ValueError("wrong"),
        SystemExit(3),
        GeneratorExit(),
        MemoryError(),
        RecursionError(),
        UnspeakableError(),
        ValueError("\ud800"),
        ValueError("x" * 10_000),
        TimeoutError("a socket's own"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_any_exception_is_a_recorded_failure_that_nothing_retries(lab, problem):
    def act(args, ctx):
        raise problem

    got = answer(lab, act)
    error = lab.payload("tool.error")
    assert got.error.code == error["code"] == "TOOL_ERROR"
    assert (error["outcome"], error["retryable"]) == ("failed", False)
    assert type(problem).__name__ in error["message"]
    assert len(error["message"]) <= 2_000


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {1, 2},
        b"bytes",
        object(),
        {"a": (1, 2)},
        {1: "a"},
        "\udc00",
        2**60,
        {"$sealed": "0" * 64, "size": 1},
        [{"deep": {"$sealed": 1}}],
        "x" * (MAX_BYTES + 1_000_000),
    ],
    ids=["nan", "inf", "set", "bytes", "object", "tuple", "int-key", "surrogate", "big", "sealed", "deep", "17MiB"],
)
def test_result_that_cannot_be_recorded_is_a_failure(lab, value):
    got = answer(lab, lambda args, ctx: value)
    error = lab.payload("tool.error")
    assert got.error.code == error["code"] == "INTAKE_REFUSED"
    assert error["outcome"] == "failed"
    assert "tool.result" not in lab.types()


def test_result_that_holds_itself_is_a_failure(lab):
    def act(args, ctx):
        made: Any = {}
        made["again"] = made
        return made

    assert answer(lab, act).error.code == "INTAKE_REFUSED"


def test_large_result_is_sealed_in_the_record_and_whole_for_the_caller(lab):
    large = "x" * 2_000_000
    assert answer(lab, lambda args, ctx: large) == Ok(large)
    sealed = lab.payload("tool.result")["result"]
    assert sealed.keys() == {"$sealed", "size"}
    assert (lab.ledger().parent / "sealed" / sealed["$sealed"]).stat().st_size == 32 + 2_000_002


# --- validation -------------------------------------------------------------------------------------------------------


def test_result_that_does_not_fit_stands_in_the_record_and_does_not_reach_the_caller(lab):
    got = answer(lab, lambda args, ctx: {"n": "many"}, gives=NUMBER)
    assert got.error.code == "SCHEMA_VIOLATION"
    assert lab.payload("tool.result")["result"] == {"n": "many"}
    violation = lab.one("schema.violation")
    assert violation.parent == lab.one("tool.call").span
    assert (violation.payload["subject"], violation.payload["errors"][0]["path"]) == ("result", "$.n")


# --- observers --------------------------------------------------------------------------------------------------------


def test_observer_narrows_what_the_caller_sees_and_the_record_has_both(lab):
    lab.hook("hide", "PostToolUse", lambda call, result: {"n": 1})
    got = answer(lab, lambda args, ctx: {"n": 1, "secret": 2}, gives=NUMBER)
    assert got == Ok({"n": 1})
    assert lab.payload("tool.result")["result"] == {"n": 1, "secret": 2}
    fired = lab.payload("hook.fired")
    assert (fired["decision"], fired["output"]) == ("transform", {"n": 1})
    assert fired["asked"][0]["decision"] == "transform"


def test_observers_come_one_after_the_other_each_on_what_the_last_left(lab):
    lab.hook("first", "PostToolUse", lambda call, result: {**result, "by": ["first"]}, priority=2)
    lab.hook("then", "PostToolUse", lambda call, result: {**result, "by": [*result["by"], "then"]}, priority=1)
    assert answer(lab, lambda args, ctx: {}).value == {"by": ["first", "then"]}


def test_observer_that_only_looks_leaves_no_output(lab):
    lab.hook("look", "PostToolUse", lambda call, result: result)
    assert answer(lab, lambda args, ctx: {"n": 1}) == Ok({"n": 1})
    fired = lab.payload("hook.fired")
    assert "output" not in fired
    assert fired["decision"] == "allow"


@pytest.mark.parametrize("hook", [lambda call, result: 1 / 0, lambda call, result: {1}, lambda call, result: exit()])
def test_observer_that_fails_withholds_the_result_which_stays_recorded(lab, hook):
    lab.hook("broken", "PostToolUse", hook, priority=1)
    lab.hook("other", "PostToolUse", lambda call, result: result)
    got = answer(lab, lambda args, ctx: {"n": 1})
    assert got.error.code == "GATE_DENIED"
    assert lab.payload("tool.result")["result"] == {"n": 1}
    fired = lab.payload("hook.fired")
    assert fired["decision"] == "deny"
    assert [each["decision"] for each in fired["asked"]] == ["deny", "allow"]


def test_what_observers_leave_is_validated(lab):
    lab.hook("spoil", "PostToolUse", lambda call, result: {"n": "none"})
    assert answer(lab, lambda args, ctx: {"n": 1}, gives=NUMBER).error.code == "SCHEMA_VIOLATION"


def test_observers_are_not_asked_about_failures(lab):
    asked = []
    lab.hook("look", "PostToolUse", lambda call, result: asked.append(1) or result)
    assert isinstance(answer(lab, lambda args, ctx: 1 / 0), Err)
    assert asked == []


def test_observer_sees_the_call_with_the_arguments_that_ran(lab):
    seen = []
    lab.hook("look", "PostToolUse", lambda call, result: seen.append((call.ability, dict(call.args))) or result)
    lab.tool("act", lambda args, ctx: args.clear())
    with lab.session() as session:
        session.call("act", {"a": 1})
    assert seen == [("act", {"a": 1})]


# --- time -------------------------------------------------------------------------------------------------------------


def test_late_result_of_what_cannot_be_interrupted_is_marked_and_given(lab):
    assert answer(lab, lambda args, ctx: time.sleep(0.02) or {"n": 1}, timeout_ms=1) == Ok({"n": 1})
    assert lab.payload("tool.result")["late"] is True


def test_result_in_time_bears_no_mark(lab):
    answer(lab, lambda args, ctx: {"n": 1}, timeout_ms=60_000)
    assert "late" not in lab.payload("tool.result")


def test_handler_is_told_the_seconds_that_are_left(lab):
    left = []
    answer(lab, lambda args, ctx: left.append(ctx.remaining()), timeout_ms=60_000)
    assert 0 < left[0] <= 60
    left.clear()
    lab.tool("free", lambda args, ctx: left.append(ctx.remaining()))
    with lab.session() as session:
        session.call("free", {})
    assert left == [float("inf")]


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_big_integers_are_refused_unless_the_ability_takes_their_digits(lab):
    lab.tool("plain", lambda args, ctx: args)
    lab.tool("wide", lambda args, ctx: args, big_integers="string")
    with lab.session() as session:
        assert session.call("plain", {"n": 2**53}).error.code == "INTAKE_REFUSED"
        assert session.call("wide", {"n": 2**53, "m": [-(2**64), 7]}).value == {
            "n": str(2**53),
            "m": [str(-(2**64)), 7],
        }
    assert lab.payload("tool.call")["args"] == {"n": "9007199254740992", "m": ["-18446744073709551616", 7]}
