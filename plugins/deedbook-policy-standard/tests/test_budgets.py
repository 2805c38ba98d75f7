"""Budgets: N calls are N calls, whoever asks at once, and what was used is said."""

import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deedbook.contract import Call, PolicyTarget, Principal
from deedbook.format import schema
from deedbook.format.errors import Ok

STARTED = "2026-01-01T00:00:00.000Z"


def budget(limits, **more):
    (point,) = entry_points(group="deedbook.policy_kinds", name="budget")
    kind = point.load()
    body = {"limits": limits, **more}
    jsonschema_rs.validate(kind.spec.settings, body)
    return kind(body, None)


def call(ability="echo", calls=None, usage=None, now=STARTED):
    facts = {"session.calls": calls or {}, "session.usage": usage or {}, "session.started": STARTED}
    return Call(ability, "tool", {}, "write", frozenset(), Principal("local", "cli"), None, None, "enforce", "s", now,
                b"{}", facts)  # fmt: skip


# --- the boundary -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "below", "reached", "reason"),
    [
        ({"calls": 3}, {"calls": {"a": 1, "model/b": 1}}, {"calls": {"a": 2, "model/b": 1}}, "calls: 3 of 3 are used"),
        ({"calls": {"ec*": 2}}, {"calls": {"echo": 1, "a": 9}}, {"calls": {"echo": 2}},
         "calls of ec*: 2 of 2 are used"),
        ({"input_tokens": 5}, {"usage": {"input_tokens": 4, "output_tokens": 9}}, {"usage": {"input_tokens": 7}},
         "input_tokens: 7 of 5 are used"),
        ({"output_tokens": 5}, {"usage": {"output_tokens": 4}}, {"usage": {"output_tokens": 5}},
         "output_tokens: 5 of 5 are used"),
        ({"tokens": 9}, {"usage": {"input_tokens": 8}}, {"usage": {"input_tokens": 5, "output_tokens": 4}},
         "tokens: 9 of 9 are used"),
        ({"cost_usd": 0.5}, {"usage": {"input_tokens": 1, "cost_usd": 0.49}}, {"usage": {"cost_usd": 0.5}},
         "cost_usd: 0.5 of 0.5 are used"),
        ({"seconds": 90}, {"now": "2026-01-01T00:01:29.999Z"}, {"now": "2026-01-01T00:01:30.000Z"},
         "seconds: 90 of 90 are used"),
    ],
)  # fmt: skip
def test_a_call_goes_on_while_less_than_the_limit_is_used(limits, below, reached, reason):
    assert budget(limits)(call(**below)).outcome == "allow"
    denied = budget(limits)(call(**reached))
    assert (denied.outcome, denied.reason) == ("deny", reason)
    assert budget(limits, then="ask")(call(**reached)).outcome == "ask"


def test_a_limit_of_none_denies_all():
    assert budget({"calls": 0})(call()).outcome == "deny"
    assert budget({"tokens": 0})(call()).outcome == "deny"


def test_a_limit_on_other_abilities_is_not_asked_about_this_one():
    assert budget({"calls": {"file-*": 0, "*/x": 0}})(call("echo")).outcome == "allow"
    assert budget({"calls": {"**": 0}})(call("a/b/c")).outcome == "deny"
    assert budget({"calls": {"a/*": 0}})(call("a/b/c")).outcome == "allow"


def test_the_first_limit_that_is_reached_is_said():
    both = budget({"calls": {"echo": 1}, "seconds": 1})
    assert both(call(calls={"echo": 1}, now="2026-01-01T00:00:09.000Z")).reason == "calls of echo: 1 of 1 are used"
    assert both(call(now="2026-01-01T00:00:09.000Z")).reason == "seconds: 9 of 1 are used"


def test_a_cost_that_nobody_says_is_no_cost_that_is_kept():
    assert budget({"cost_usd": 1})(call()).outcome == "allow"
    assert "does not say" in budget({"cost_usd": 1})(call(usage={"input_tokens": 3})).reason
    assert budget({"cost_usd": 1})(call(usage={"input_tokens": 3, "cost_usd": 0})).outcome == "allow"


@given(st.integers(0, 50), st.dictionaries(st.sampled_from(["a", "a/b", "b"]), st.integers(0, 30)))
def test_it_allows_exactly_what_is_below(most, calls):
    used = sum(calls.values())
    assert (budget({"calls": most})(call("a", calls)).outcome == "allow") is (used < most)


# --- what it takes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"limits": {}},
        {"limits": {"calls": -1}},
        {"limits": {"calls": 1.5}},
        {"limits": {"calls": {}}},
        {"limits": {"calls": {"": 1}}},
        {"limits": {"calls": {"*a*b*c*d*e": 1}}},
        {"limits": {"token": 1}},
        {"limits": {"calls": 1}, "then": "allow"},
        {"limits": {"calls": 1}, "rules": []},
    ],
)
def test_other_settings_are_refused(body):
    (point,) = entry_points(group="deedbook.policy_kinds", name="budget")
    assert schema.lint(point.load().spec.settings) == ()
    assert not jsonschema_rs.is_valid(point.load().spec.settings, body)


def test_it_is_pure_and_says_what_it_reads():
    (point,) = entry_points(group="deedbook.policy_kinds", name="budget")
    spec = point.load().spec
    assert spec.pure
    assert spec.reads == {"session.calls", "session.usage", "session.started"}


# --- at the door ------------------------------------------------------------------------------------------------------


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_interleaving_of_calls_passes_the_limit(make_lab, data):
    most, threads, names = data.draw(st.tuples(st.integers(0, 6), st.integers(1, 6), st.lists(
        st.sampled_from(["a", "b"]), min_size=1, max_size=20)))  # fmt: skip
    lab = make_lab()
    for name in ("a", "b"):
        lab.tool(name, lambda args, ctx: time.sleep(0.0002) or {})
    lab.settings(policies={"spending": {"kind": "budget", "limits": {"calls": most}}})
    with lab.session() as session, ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(lambda name: session.call(name, {}), names))
    assert sum(isinstance(result, Ok) for result in results) == min(most, len(names))
    assert lab.types().count("tool.call") == min(most, len(names))


def test_model_calls_are_budgeted_where_the_match_names_them(lab):
    def thrice(args, run):
        said = [run.agent("lead").complete({"messages": [{"role": "user", "content": "x"}]}) for _ in range(3)]
        return {"reply": said[-1]["text"]}

    lab.role("lead")
    lab.flow("ask", thrice)
    lab.model(lambda request, ctx: "hi")
    body = {"kind": "budget", "match": {"kind": ["model"]}, "limits": {"calls": {"model/*": 2}}}
    lab.settings(policies={"spending": body})
    with lab.session() as session:
        result = session.call("ask", {"prompt": "x"})
    assert "calls of model/*: 2 of 2 are used" in result.error.message
    assert lab.types().count("llm.request") == 2


def test_time_is_counted_from_the_start_of_the_session(lab):
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies={"spending": {"kind": "budget", "limits": {"seconds": 0.0}}})
    with lab.session() as session:
        denied = session.call("a", {}).error
        started = lab.one("session.start").ts
    assert denied.code == "GATE_DENIED"
    assert lab.payload("policy.check")["facts"]["session.started"] == started


# --- before any call --------------------------------------------------------------------------------------------------


def target(name):
    return PolicyTarget(
        id=name, kind="tool", effects="none", tags=frozenset(), scopes=frozenset(), paths=(), takes=({},)
    )


def test_limit_on_calls_that_fits_no_ability_is_noted():
    (point,) = entry_points(group="deedbook.policy_kinds", name="budget")
    body = {"limits": {"calls": {"file-*": 1, "fil/~read": 2, "**": 9}, "seconds": 1}}
    (found,) = point.load().lint(body, [target("file-read"), target("echo")])
    assert found.pointer == "/limits/calls/fil~1~0read"
    assert found.message == "limits the calls of 'fil/~read', which fits no ability that this policy is asked about"
    assert list(point.load().lint({"limits": {"calls": 3}}, [])) == []
