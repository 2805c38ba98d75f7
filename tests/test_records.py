"""What the door writes: text of bounded size, the same bytes for the same round, facts only where they were read."""

import time

import pytest

from deedbook import Decision, Failed, allow, deny
from deedbook.call.records import text
from deedbook.format.canonical import encode


@pytest.fixture
def acting(lab):
    lab.tool("act", lambda args, ctx: args)
    return lab


def call(lab, name="act", args=None):
    with lab.session() as session:
        return session.call(name, args if args is not None else {})


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "recorded"),
    [("plain", "plain"), ("x" * 5_000, "x" * 2_000), ("a\ud800b", "a\\ud800b"), ("", ""), ("ü\n\0", "ü\n\0")],
)
def test_text_of_others_is_recorded_bounded_and_whole_characters_only(value, recorded):
    assert text(value) == recorded
    encode(text(value))


def test_name_of_an_unknown_ability_is_recorded_bounded(lab):
    call(lab, "x" * 10_000)
    denied = lab.payload("tool.denied")
    assert len(denied["name"]) == 2_000
    assert len(denied["reason"]) <= 2_000


@pytest.mark.parametrize("name", ["", "\ud800", "a\nb\x1b[2J", '"},"x":{"', "../../etc/passwd"])
def test_name_that_nobody_expects_is_recorded_as_it_is_or_escaped(lab, name):
    call(lab, name)
    assert lab.payload("tool.denied")["name"] == name.encode("utf-8", "backslashreplace").decode()


def test_message_of_a_failure_is_recorded_bounded(lab):
    def act(args, ctx):
        raise Failed("C" * 5_000, "m" * 5_000)

    lab.tool("act", act)
    call(lab)
    error = lab.payload("tool.error")
    assert len(error["code"]) == 2_000
    assert 400 < len(error["message"]) <= 2_000


def test_reason_of_a_gate_is_recorded_bounded(acting):
    acting.hook("no", "PreToolUse", lambda call: deny("r" * 5_000))
    call(acting)
    assert len(acting.payload("tool.denied")["reason"]) <= 2_000
    assert len(acting.payload("hook.fired")["asked"][0]["reason"]) <= 2_000


def test_violations_are_recorded_up_to_twenty(lab):
    lab.tool("act", lambda args, ctx: None, takes={"type": "object", "additionalProperties": {"type": "integer"}})
    call(lab, args={f"n{i}": "x" for i in range(100)})
    assert len(lab.payload("schema.violation")["errors"]) == 20


# --- rounds -----------------------------------------------------------------------------------------------------------


def test_round_that_was_seen_before_is_written_in_the_same_bytes(acting):
    acting.hook("a", "PreToolUse", lambda call: allow())
    acting.hook("b", "PreToolUse", lambda call: allow(f"run {call.args['n']}") if call.args["n"] else allow())
    with acting.session() as session:
        for n in (0, 1, 0, 2):
            session.call("act", {"n": n})
    said = [event.payload["asked"] for event in acting.all("hook.fired")]
    assert said[0] == said[2]
    assert [each[1].get("reason") for each in said] == [None, "run 1", None, "run 2"]


def test_round_of_each_ability_names_it(acting):
    acting.tool("other", lambda args, ctx: args)
    acting.hook("a", "PreToolUse", lambda call: allow())
    with acting.session() as session:
        for name in ("act", "other", "act"):
            session.call(name, {})
    assert [event.payload["ability"] for event in acting.all("hook.fired")] == ["act", "other", "act"]


def test_hooks_that_do_not_match_are_neither_asked_nor_recorded(acting):
    asked = []
    acting.hook("never", "PreToolUse", lambda call: asked.append(1) or allow(), match={"abilities": ["other"]})
    acting.hook("sometimes", "PreToolUse", lambda call: asked.append(2) or allow(), match={"args": {"/n": {"min": 5}}})
    with acting.session() as session:
        session.call("act", {"n": 1})
        assert asked == []
        session.call("act", {"n": 5})
    assert asked == [2]
    assert [each["hook"] for each in acting.payload("hook.fired")["asked"]] == ["sometimes"]


def test_digest_of_a_gate_tells_its_settings_apart(acting):
    anything = {"type": "object"}
    acting.hook("a", "PreToolUse", lambda call: allow(), settings=anything, with_={"limit": 1})
    acting.hook("b", "PreToolUse", lambda call: allow(), settings=anything, with_={"limit": 2})
    call(acting)
    first, second = acting.payload("hook.fired")["asked"]
    assert first["digest"] != second["digest"]
    assert len(first["digest"]) == len(second["digest"]) == 64


def test_facts_stand_only_in_the_round_whose_gates_read_them(acting):
    acting.hook("reads", "PreToolUse", lambda call: allow(), reads=["session.calls"])
    acting.policy("blind", lambda call: allow())
    call(acting)
    assert acting.payload("hook.fired")["facts"] == {"session.calls": {}}
    assert "facts" not in acting.payload("policy.check")


def test_signals_of_a_hook_are_recorded_and_those_that_cannot_be_deny(acting):
    acting.hook("good", "PreToolUse", lambda call: Decision("allow", signals={"ability_guard": "ok"}))
    acting.hook("bad", "PreToolUse", lambda call: Decision("allow", signals={"ability_guard": {1, 2}}))
    call(acting)
    asked = {each["hook"]: each for each in acting.payload("hook.fired")["asked"]}
    assert asked["good"]["signals"] == {"ability_guard": "ok"}
    assert "signals" not in asked["bad"]


# --- kinds ------------------------------------------------------------------------------------------------------------


REQUEST = {"messages": [{"role": "user", "content": "hi"}], "model": "m", "schema_version": "v2"}


def test_each_kind_of_ability_is_written_in_its_own_words(acting):
    acting.model(lambda request, ctx: "hello")
    acting.flow("work", lambda args, run: {"done": True}, gives={"type": "object"})
    with acting.session() as session:
        session.call("act", {"a": 1})
        session.call("model/standard", REQUEST)
        session.call("work", {"b": 2})
    story = [(event.type, event.actor) for event in acting.events()[1:-1] if not event.type.startswith("context")]
    assert story == [
        ("tool.call", "user"),
        ("tool.result", "tool"),
        ("llm.request", "user"),
        ("llm.response", "agent"),
        ("flow.call", "user"),
        ("flow.result", "runtime"),
    ]
    assert acting.payload("llm.request") == {"ability": "model/standard", "request": REQUEST}
    assert acting.payload("llm.response")["response"]["text"] == "hello"
    assert acting.payload("flow.call") == {"args": {"b": 2}, "flow": "work"}
    assert acting.payload("flow.result") == {"flow": "work", "result": {"done": True}}


def test_late_results_of_each_kind_bear_the_mark(lab):
    def slowly(args, ctx):
        time.sleep(0.01)
        return "late"

    lab.tool("act", slowly, timeout_ms=1)
    lab.model(slowly, timeout_ms=1)
    lab.flow("work", slowly, timeout_ms=1)
    with lab.session() as session:
        session.call("act", {})
        session.call("model/standard", REQUEST)
        session.call("work", {})
    assert all(lab.payload(name)["late"] for name in ("tool.result", "llm.response", "flow.result"))


def test_denied_model_and_flow_say_their_kind(acting):
    acting.model(lambda request, ctx: "hello")
    acting.flow("work", lambda args, run: None)
    acting.hook("no", "PreToolUse", lambda call: deny("no"))
    with acting.session() as session:
        for name, args in (("act", {}), ("model/standard", REQUEST), ("work", {})):
            session.call(name, args)
    assert [event.payload["kind"] for event in acting.all("tool.denied")] == ["tool", "model", "flow"]
