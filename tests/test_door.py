"""The door in its nine steps, as the ledger tells them: who was asked, what was begun, what was refused and why."""

import pytest

from deedbook import Err, Ok, allow, ask, deny, transform
from deedbook.policy.bound import Scope

TEXT = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string"}},
    "additionalProperties": False,
}


@pytest.fixture
def calls(lab):
    """Declare the tool ``echo``, which takes and gives {text}; return the arguments that it was called with."""
    seen = []

    def echo(args, ctx):
        seen.append(args)
        return {"text": args["text"]}

    lab.tool("echo", echo, takes=TEXT, gives=TEXT)
    return seen


def story(lab):
    """Return type and parent's type of each event after session.start."""
    events = lab.events()
    types = {event.span: event.type for event in events}
    return [(event.type, types[event.parent]) for event in events[1:]]


def refusal(lab, result):
    """Return the one tool.denied, after checking that nothing was begun and that the caller was told the same."""
    denied = lab.one("tool.denied")
    assert "tool.call" not in lab.types()
    assert isinstance(result, Err)
    assert result.error.code == denied.payload["code"]
    return denied


# --- the order of things ----------------------------------------------------------------------------------------------


def test_call_writes_hooks_policies_intent_outcome_and_observers_in_that_order(lab, calls):
    lab.hook("guard", "PreToolUse", lambda call: allow())
    lab.policy("rule", lambda call: allow())
    lab.hook("watch", "PostToolUse", lambda call, result: result)
    with lab.session() as session:
        assert session.call("echo", {"text": "a"}) == Ok({"text": "a"})
    assert story(lab) == [
        ("hook.fired", "session.start"),
        ("policy.check", "session.start"),
        ("tool.call", "session.start"),
        ("tool.result", "tool.call"),
        ("hook.fired", "tool.call"),
        ("session.end", "session.start"),
    ]
    assert lab.payload("tool.call") == {"args": {"text": "a"}, "tool_name": "echo"}
    assert lab.payload("tool.result") == {"result": {"text": "a"}, "tool_name": "echo"}
    assert [event.payload["event"] for event in lab.all("hook.fired")] == ["PreToolUse", "PostToolUse"]


def test_call_without_gates_writes_two_lines(lab, calls):
    with lab.session() as session:
        session.call("echo", {"text": "a"})
    assert lab.types() == ["session.start", "tool.call", "tool.result", "session.end"]


def test_call_is_written_with_who_acts_and_on_whose_account(lab, calls):
    with lab.session() as session:
        session.call("echo", {"text": "a"})
    intent, result = lab.one("tool.call"), lab.one("tool.result")
    assert (intent.actor, intent.principal) == ("user", "local")
    assert (result.actor, result.principal) == ("tool", "local")


def test_hooks_and_policies_are_all_asked_and_the_most_conservative_wins(lab, calls):
    asked = []
    for name, decision in (("a", allow()), ("b", ask("hm")), ("c", deny("no")), ("d", allow())):
        lab.hook(name, "PreToolUse", lambda call, name=name, decision=decision: asked.append(name) or decision)
    lab.policy("p", lambda call: asked.append("p") or ask("hm"))
    with lab.session() as session:
        denied = refusal(lab, session.call("echo", {"text": "a"}))
    assert asked == ["a", "b", "c", "d", "p"]
    assert denied.payload["code"] == "GATE_DENIED"
    assert denied.payload["by"]["hook"] == "c"
    assert lab.payload("hook.fired")["decision"] == "deny"
    assert [each["decision"] for each in lab.payload("hook.fired")["asked"]] == ["allow", "ask", "deny", "allow"]
    assert calls == []


def test_rewriters_go_first_each_on_the_last_output_and_guards_see_what_will_run(lab, calls):
    def append(letter):
        return lambda call: transform({"text": call.args["text"] + letter}, f"added {letter}")

    seen = []
    lab.hook("guard", "PreToolUse", lambda call: seen.append(call.args["text"]) or allow(), priority=100)
    lab.hook("late", "PreToolUse", append("2"), rewrites=True, priority=1)
    lab.hook("early", "PreToolUse", append("1"), rewrites=True, priority=2)
    lab.policy("rule", lambda call: seen.append(call.args["text"]) or allow())
    with lab.session() as session:
        assert session.call("echo", {"text": "0"}) == Ok({"text": "012"})
    fired = lab.payload("hook.fired")
    assert [each["hook"] for each in fired["asked"]] == ["early", "late", "guard"]
    assert (fired["decision"], fired["input"], fired["output"]) == ("transform", {"text": "0"}, {"text": "012"})
    assert seen == ["012", "012"]
    assert lab.payload("tool.call")["args"] == {"text": "012"}
    assert calls == [{"text": "012"}]


def test_rewritten_arguments_are_validated_again(lab, calls):
    lab.hook("break", "PreToolUse", lambda call: transform({"text": 1}), rewrites=True)
    with lab.session() as session:
        denied = refusal(lab, session.call("echo", {"text": "a"}))
    assert denied.payload["code"] == "SCHEMA_VIOLATION"
    assert lab.payload("schema.violation")["subject"] == "transform"
    assert story(lab)[:3] == [(kind, "session.start") for kind in ("hook.fired", "schema.violation", "tool.denied")]


def test_fired_event_has_no_input_and_output_where_nothing_changed(lab, calls):
    lab.hook("same", "PreToolUse", lambda call: transform(dict(call.args)), rewrites=True)
    with lab.session() as session:
        assert session.call("echo", {"text": "a"}) == Ok({"text": "a"})
    assert {"input", "output"}.isdisjoint(lab.payload("hook.fired"))


# --- denials ----------------------------------------------------------------------------------------------------------


def test_unknown_ability_is_denied_with_the_nearest_name(lab, calls):
    with lab.session() as session:
        denied = refusal(lab, session.call("ecko", {"text": "a"}))
    assert denied.payload["code"] == "TOOL_NOT_FOUND"
    assert "echo" in denied.payload["reason"]
    assert denied.payload["args"] == {"text": "a"}
    assert story(lab) == [("tool.denied", "session.start"), ("session.end", "session.start")]


def test_call_outside_the_scope_is_denied_before_its_arguments_are_looked_at(lab, calls):
    with lab.session() as session:
        import attrs

        caller = attrs.evolve(session.caller, scope=Scope("what Ada allows", frozenset({"other"})))
        denied = refusal(lab, session.door.call(caller, "echo", {"wrong": 1}, session.ledger.root))
    assert denied.payload["code"] == "TOOL_NOT_ALLOWED"
    assert denied.payload["by"] == {"scope": "what Ada allows"}
    assert "schema.violation" not in lab.types()


def test_arguments_that_do_not_fit_are_denied_with_every_fault(lab, calls):
    with lab.session() as session:
        denied = refusal(lab, session.call("echo", {"text": 1, "more": 2}))
    assert denied.payload["code"] == "SCHEMA_VIOLATION"
    violation = lab.payload("schema.violation")
    assert (violation["subject"], violation["name"], violation["schema"]) == ("arguments", "echo", "echo#takes")
    assert {error["path"] for error in violation["errors"]} == {"$.more", "$.text"}
    assert story(lab)[:2] == [("schema.violation", "session.start"), ("tool.denied", "session.start")]
    assert calls == []


@pytest.mark.parametrize("args", [None, [], ["text"], "text", 1, True])
def test_arguments_that_are_no_object_are_denied_even_where_the_schema_would_take_them(lab, args):
    lab.tool("any", lambda args, ctx: args)
    with lab.session() as session:
        denied = refusal(lab, session.call("any", args))
    assert denied.payload["code"] == "SCHEMA_VIOLATION"
    assert "args" not in denied.payload


def test_policy_denies_with_its_rule_and_the_rules_place(lab, calls):
    lab.settings(
        policies={
            "baseline": {
                "kind": "rules",
                "rules": [
                    {"match": {"abilities": ["other"]}, "then": "allow"},
                    {"match": {"args": {"/text": {"like": "rm *"}}}, "then": "deny", "reason": "not here"},
                ],
                "default": "allow",
            }
        }
    )
    with lab.session() as session:
        denied = refusal(lab, session.call("echo", {"text": "rm -rf"}))
        assert session.call("echo", {"text": "ls"}) == Ok({"text": "ls"}) or True
    assert denied.payload["reason"] == "not here"
    assert denied.payload["by"]["policy"] == "baseline"
    assert ".system/deedbook.yaml:" in denied.payload["by"]["rule"]
    assert denied.payload["by"]["place"].startswith(".system/deedbook.yaml:")
    assert lab.all("policy.check")[0].payload["decision"] == "deny"


@pytest.mark.parametrize(
    "answer",
    [lambda call: None, lambda call: 1 / 0, lambda call: "allow", lambda call: exit(), lambda call: transform({})],
    ids=["nothing", "exception", "wrong-type", "exit", "transform-of-a-guard"],
)
def test_gate_that_does_not_decide_denies(lab, calls, answer):
    lab.hook("broken", "PreToolUse", answer)
    with lab.session() as session:
        denied = refusal(lab, session.call("echo", {"text": "a"}))
    assert denied.payload["code"] == "GATE_DENIED"
    assert denied.payload["by"]["hook"] == "broken"
    assert calls == []


def test_gate_that_answers_late_denies(lab, calls):
    import time

    lab.hook("slow", "PreToolUse", lambda call: time.sleep(0.02) or allow(), timeout_ms=1)
    with lab.session() as session:
        denied = refusal(lab, session.call("echo", {"text": "a"}))
    assert "limit" in denied.payload["reason"]


@pytest.mark.parametrize("way", ["hook", "policy", "rewriter", "tag"])
def test_ask_ends_a_call_as_needs_human_and_opens_nothing(lab, calls, way):
    if way == "policy":
        lab.policy("p", lambda call: ask("look at this"))
    elif way == "tag":
        lab.settings(abilities={"echo": {"tags": ["approval-gate"]}})
    else:
        lab.hook("h", "PreToolUse", lambda call: ask("look at this"), rewrites=way == "rewriter")
    with lab.session() as session:
        denied = refusal(lab, session.call("echo", {"text": "a"}))
        assert session.door.open == {}
    assert denied.payload["code"] == "NEEDS_HUMAN"
    assert calls == []


@pytest.mark.parametrize(
    "args",
    [{"text": float("nan")}, {"text": "\ud800"}, {"text": {"$sealed": "x"}}, {1: 2}, {"text": {1, 2}}, {"text": 2**53}],
    ids=["nan", "surrogate", "sealed", "key", "set", "integer"],
)
def test_arguments_that_cannot_be_recorded_are_denied_without_them(lab, calls, args):
    with lab.session() as session:
        denied = refusal(lab, session.call("echo", args))
    assert denied.payload["code"] == "INTAKE_REFUSED"
    assert "args" not in denied.payload


def nested(levels):
    value = 0
    for _ in range(levels - 1):
        value = {"a": value}
    return {"a": value}


def test_arguments_as_deep_as_intake_accepts_can_be_called_and_denied(lab):
    lab.tool("deep", lambda args, ctx: args)
    lab.tool("never", lambda args, ctx: args)
    lab.hook("no", "PreToolUse", lambda call: deny("no"), match={"abilities": ["never"]})
    with lab.session() as session:
        assert session.call("deep", nested(64)) == Ok(nested(64))
        assert session.call("never", nested(64)).error.code == "GATE_DENIED"
        assert session.call("deep", nested(65)).error.code == "INTAKE_REFUSED"


def test_denial_holds_the_final_arguments(lab, calls):
    lab.hook("rewrite", "PreToolUse", lambda call: transform({"text": "[hidden]"}), rewrites=True)
    lab.policy("never", lambda call: deny("no"))
    with lab.session() as session:
        denied = refusal(lab, session.call("echo", {"text": "a"}))
    assert denied.payload["args"] == {"text": "[hidden]"}


def test_observe_records_what_policies_would_decide_and_hooks_still_bind(lab, calls):
    lab.settings(enforcement="observe")
    lab.policy("never", lambda call: deny("no"))
    with lab.session() as session:
        assert session.call("echo", {"text": "a"}) == Ok({"text": "a"})
    check = lab.payload("policy.check")
    assert (check["decision"], check["enforcement"]) == ("deny", "observe")
    lab.hook("h", "PreToolUse", lambda call: deny("no"))
    with lab.session() as session:
        refusal(lab, session.call("echo", {"text": "a"}))
        assert session.call("echo", {}).error.code == "SCHEMA_VIOLATION"
