"""What ran is what the line commits to: nobody can change it through an object that others hold, too."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from deedbook import Ok, allow, transform
from deedbook.call.handlers import Outcome
from deedbook.contract.features import FeatureSpec, featureimpl

SECRET = "s3cr3t-t0ken-value"


@pytest.fixture
def ran(lab):
    """Declare the tool ``keep``; return what its handler was called with, and what it made of that."""
    seen = []

    def keep(args, ctx):
        seen.append({name: list(value) for name, value in args.items()})
        args["list"].append("handler")
        return args

    lab.tool("keep", keep)
    return seen


def test_caller_may_change_its_arguments_and_its_result_afterwards(lab, ran):
    mine = {"list": [1]}
    with lab.session() as session:
        got = session.call("keep", mine).value
        assert mine == {"list": [1]}
        mine["list"].append("caller")
        got["list"].append("caller")
        assert session.call("keep", {"list": [2]}).value == {"list": [2, "handler"]}
    assert [event.payload["args"] for event in lab.all("tool.call")] == [{"list": [1]}, {"list": [2]}]
    assert lab.all("tool.result")[0].payload["result"] == {"list": [1, "handler"]}
    assert ran == [{"list": [1]}, {"list": [2]}]


def test_handler_may_keep_and_change_what_it_returned(lab):
    kept = {"n": 1}
    lab.tool("give", lambda args, ctx: kept)
    with lab.session() as session:
        got = session.call("give", {}).value
        kept["n"] = 2
    assert got == {"n": 1} == lab.payload("tool.result")["result"]


def test_rewriter_may_change_its_copy_and_what_it_answered_with(lab, ran):
    kept = {"list": [1]}

    def rewrite(call):
        call.args["list"].append("seen")
        return transform(kept)

    lab.hook("rewrite", "PreToolUse", rewrite, rewrites=True)
    lab.hook("later", "PreToolUse", lambda call: kept["list"].append("kept") or allow())
    with lab.session() as session:
        session.call("keep", {"list": [0]})
    assert ran == [{"list": [1]}]
    assert lab.payload("hook.fired")["input"] == {"list": [0]}
    assert lab.payload("hook.fired")["output"] == {"list": [1]} == lab.payload("tool.call")["args"]


@pytest.mark.parametrize("kind", ["hook", "policy"])
def test_guard_that_changes_its_copy_is_found_and_denies(lab, ran, kind):
    """Guards share one copy; whoever came after would have judged another call than the one that runs."""
    spoil = lambda call: call.args["list"].clear() or allow()  # noqa: E731
    lab.hook("spoil", "PreToolUse", spoil) if kind == "hook" else lab.policy("spoil", spoil)
    with lab.session() as session:
        assert session.call("keep", {"list": [1]}).error.code == "GATE_DENIED"
    denied = lab.payload("tool.denied")
    assert "spoil" in denied["reason"]
    assert denied["args"] == {"list": [1]}
    assert ran == []


def test_gate_that_keeps_the_arguments_cannot_change_what_runs(lab):
    kept, ran = [], []
    lab.hook("keep", "PreToolUse", lambda call: kept.append(call.args) or allow())

    def act(args, ctx):
        kept[0]["n"] = 2
        ran.append(dict(args))

    lab.tool("act", act)
    with lab.session() as session:
        session.call("act", {"n": 1})
    assert ran == [{"n": 1}] == [lab.payload("tool.call")["args"]]


def test_observer_that_keeps_the_result_cannot_change_what_the_caller_has(lab):
    kept = []
    lab.hook("keep", "PostToolUse", lambda call, result: kept.append(result) or result)
    lab.tool("act", lambda args, ctx: {"n": 1})
    with lab.session() as session:
        got = session.call("act", {}).value
        kept[0]["n"] = 2
    assert got == {"n": 1}


def test_gate_that_changes_its_facts_changes_no_record_and_no_other_gates_facts(lab):
    seen = []

    def spoil(call):
        seen.append(dict(call.facts["session.calls"]))
        call.facts["session.calls"]["act"] = 99
        return allow()

    lab.tool("act", lambda args, ctx: None)
    lab.hook("a", "PreToolUse", spoil, reads=["session.calls"])
    lab.policy("b", spoil, reads=["session.calls"])
    with lab.session() as session:
        session.call("act", {})
        session.call("act", {})
    assert seen == [{}, {}, {"act": 1}, {"act": 1}]
    assert [event.payload["facts"]["session.calls"] for event in lab.all("policy.check")] == [{}, {"act": 1}]


def test_feature_that_changes_the_arguments_that_it_sees_changes_no_call(lab, ran):
    lab.offer("feature", "spoil", Spoil)
    lab.policy("reads", lambda call: allow(), reads=["spoil.level"])
    with lab.session() as session:
        assert session.call("keep", {"list": [1]}).value == {"list": [1, "handler"]}
    assert ran == [{"list": [1]}] == [lab.payload("tool.call")["args"]]


class Spoil:
    """A feature that changes what it is asked about."""

    spec = FeatureSpec(facts={"spoil.level": {"type": "object"}})

    @featureimpl
    def session_facts(self):
        return {"spoil.level": lambda caller: {}}

    @featureimpl
    def before_intents(self):
        return lambda allowed: allowed.call.args["list"].append("feature")


class Name(str):
    """A name that compares and shows itself as another one."""

    __slots__ = ()

    def __eq__(self, other):
        return other == "keep"

    def __hash__(self):
        return hash("keep")

    def __str__(self):
        return "keep"


@pytest.mark.parametrize("way", ["call", "acall", "before", "abefore"])
def test_name_of_an_ability_is_its_text_whatever_its_class_answers(lab, ran, way):
    with lab.session() as session:
        made = getattr(session, way)(Name("other"), {"list": [1]})
        result = asyncio.run(made) if way.startswith("a") else made
    assert result.error.code == lab.payload("tool.denied")["code"] == "TOOL_NOT_FOUND"
    assert "no ability 'other' is declared" in lab.payload("tool.denied")["reason"]
    assert ran == []


@pytest.mark.parametrize(
    "value",
    [Name("x"), [Name("x")], {Name("x"): 1}, {1: 1, "1": 2}, type("N", (int,), {})(5), type("D", (dict,), {})()],
)
def test_value_of_a_subclass_is_refused_as_an_argument_and_as_a_result(lab, ran, value):
    lab.tool("give", lambda args, ctx: {"value": value})
    with lab.session() as session:
        assert session.call("keep", {"list": [value]}).error.code == "INTAKE_REFUSED"
        assert session.call("give", {}).error.code == "INTAKE_REFUSED"
        ticket = session.before("give", {}).value
        assert session.after(ticket, Outcome("result", value)).error.code == "INTAKE_REFUSED"
    assert [event.payload["outcome"] for event in lab.all("tool.error")] == ["failed", "failed"]
    assert ran == []


# --- sealed and secret ----------------------------------------------------------------------------------------------


def test_sealed_argument_runs_as_it_is_and_is_recorded_by_its_digest(lab):
    ran = []
    lab.settings(seal=["tool.*/args/token"])
    lab.tool("login", lambda args, ctx: ran.append(args) or {"token": args["token"]})
    with lab.session() as session:
        assert session.call("login", {"token": "abc", "user": "ada"}) == Ok({"token": "abc"})
    recorded = lab.payload("tool.call")["args"]
    assert ran == [{"token": "abc", "user": "ada"}]
    assert recorded["user"] == "ada"
    assert recorded["token"].keys() == {"$sealed", "size"}


def test_value_of_a_secret_runs_as_it_is_and_stands_nowhere_in_the_state(lab, monkeypatch):
    monkeypatch.setenv("LAB_TOKEN", SECRET)
    ran = []
    lab.settings(secrets={"token": {"env": "LAB_TOKEN"}})
    lab.tool("login", lambda args, ctx: ran.append(args["with"]) or f"used {args['with']}")
    lab.hook("leak", "PreToolUse", lambda call: allow(f"saw {call.args['with']}"))
    lab.hook("rewrite", "PreToolUse", lambda call: transform({"with": call.args["with"], "x": SECRET}), rewrites=True)
    lab.tool("fail", lambda args, ctx: 1 / int(SECRET))
    with lab.session() as session:
        assert session.call("login", {"with": SECRET}) == Ok(f"used {SECRET}")
        session.call("fail", {"with": 1})
        session.call(SECRET, {})
    assert ran == [SECRET]
    assert lab.payload("tool.result")["result"] == "used [secret:token]"
    for place in lab.state.rglob("*"):
        assert place.is_dir() or SECRET.encode() not in place.read_bytes(), place


def test_card_number_is_sealed_wherever_it_turns_up(lab):
    lab.settings(seal=[{"detect": "card"}])
    lab.tool("echo", lambda args, ctx: args)
    with lab.session() as session:
        assert session.call("echo", {"text": "4111 1111 1111 1111"}).value == {"text": "4111 1111 1111 1111"}
        session.call("unknown", {"text": "4111 1111 1111 1111"})
    assert b"4111 1111" not in lab.ledger().read_bytes()


# --- many at once ---------------------------------------------------------------------------------------------------


def test_many_threads_call_through_one_session_and_nothing_is_lost(lab):
    lab.tool("inner", lambda args, ctx: args["n"], effects="write")
    lab.tool("outer", lambda args, ctx: ctx.call("inner", args), uses=["inner"])
    lab.hook("count", "PreToolUse", lambda call: allow(), reads=["session.calls"])
    with lab.session() as session:

        def work(thread):
            return [session.call("outer", {"n": thread * 50 + i}).value for i in range(50)]

        with ThreadPoolExecutor(8) as threads:
            got = list(threads.map(work, range(8)))
        assert session.door.open == {}
    assert got == [[thread * 50 + i for i in range(50)] for thread in range(8)]
    outer = {e.span: e.payload["args"]["n"] for e in lab.all("tool.call") if e.payload["tool_name"] == "outer"}
    inner = {e.parent: e.payload["args"]["n"] for e in lab.all("tool.call") if e.payload["tool_name"] == "inner"}
    assert sorted(outer.values()) == list(range(400))
    assert inner == outer
    assert len(lab.all("tool.result")) == 800


def test_two_kernels_in_one_process_know_nothing_of_each_other(lab, tmp_path):
    from deedbook_testing import Lab

    other = Lab(tmp_path / "other")
    lab.tool("act", lambda args, ctx: "here")
    other.tool("act", lambda args, ctx: "there")
    with lab.session() as here, other.session() as there:
        assert (here.call("act", {}).value, there.call("act", {}).value) == ("here", "there")
        assert here.id != there.id
    assert len(lab.all("tool.call")) == len(other.all("tool.call")) == 1
    other.close()
