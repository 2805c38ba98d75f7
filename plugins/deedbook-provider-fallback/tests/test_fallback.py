"""Models that are asked in turn, over real HTTP; every attempt passes the door and is recorded."""

import time
from datetime import datetime

import pytest

from deedbook import Err, Failed, HandlerSpec, Ok
from deedbook.format.errors import BindingError
from deedbook.format.folds import MetricsFold, fold
from deedbook_flow_runcontext.conversation import Conversation, Limits
from deedbook_provider_fallback import Fallback
from deedbook_testing.endpoints import Endpoint, OllamaChat
from deedbook_testing.endpoints.server import cut_short, hang

PROTOCOL = OllamaChat()
REQUEST = {"messages": [{"role": "user", "content": "Hi"}], "schema_version": "v2"}
REPORT = '{"output": "done", "steps_completed": [], "tool_calls_made": [], "schema_version": "v1"}'
SOON = {"first_wait": 0.001}


@pytest.fixture
def servers():
    """Run two endpoints; what they were sent and should not have been fails the test."""
    with Endpoint(PROTOCOL.faults) as small, Endpoint(PROTOCOL.faults) as large:
        yield [small, large]


@pytest.fixture
def profile(lab, servers):
    """Return what writes a profile: ``small`` and ``large`` at the two endpoints, and ``mid`` that asks both."""

    def write(limit=60_000, tier_limit=60_000, **settings):
        models = {
            name: {
                "provider": "ollama",
                "model": f"{name}-1",
                "timeout_ms": limit,
                "with": {"base_url": PROTOCOL.address(server.url)},
            }
            for name, server in zip(("small", "large"), servers, strict=True)
        }
        own = {"models": ["small", "large"], **SOON, **settings}
        models["mid"] = {"provider": "fallback", "timeout_ms": tier_limit, "with": own}
        lab.settings(profile="lab", profiles={"lab": {"models": models}})

    return write


def ask(session, tier="mid"):
    return session.call(f"model/{tier}", {**REQUEST, "model": ""})


def attempts(lab):
    """Return the abilities that were asked beneath the tier's own call, in order."""
    return attempts_below(lab, lab.all("llm.request")[0])


def attempts_below(lab, outer):
    return [each.payload["ability"] for each in lab.all("llm.request") if each.parent == outer.span]


def busy(seconds=0):
    return PROTOCOL.refusal("busy", 503, {"retry-after": str(seconds)})


def test_first_model_that_answers_is_the_answer(lab, servers, profile):
    servers[0].plays(PROTOCOL.answer("hello"))
    profile()
    with lab.session() as session:
        got = ask(session)
    assert (got.value["text"], servers[1].bodies) == ("hello", [])
    assert servers[0].bodies[0]["model"] == "small-1"
    assert attempts(lab) == ["model/small"]


def test_every_attempt_has_a_request_and_an_outcome_of_its_own(lab, servers, profile):
    servers[0].plays(busy(), cut_short)
    servers[1].plays(PROTOCOL.answer("hello"))
    profile(attempts=2)
    with lab.session() as session:
        assert ask(session).value["text"] == "hello"
    assert attempts(lab) == ["model/small", "model/small", "model/large"]
    outer, *inner = lab.all("llm.request")
    errors, (answer, last) = lab.all("llm.error"), lab.all("llm.response")
    assert [each.parent for each in (*errors, answer, last)] == [*(each.span for each in inner), outer.span]
    assert [each.payload["retryable"] for each in errors] == [True, True]


def test_tokens_of_the_attempts_count_once(lab, servers, profile):
    servers[0].plays(PROTOCOL.answer("hello"))
    profile()
    with lab.session() as session:
        assert ask(session).value["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert fold(MetricsFold(), lab.events()).usage == {"input_tokens": 9, "output_tokens": 12}


def test_wait_that_is_too_long_is_not_begun(lab, servers, profile):
    servers[0].plays(busy(3600))
    servers[1].plays(busy(7200))
    profile()
    with lab.session() as session:
        problem = ask(session).error
    assert attempts(lab) == ["model/small", "model/large"]
    assert (problem.code, problem.retryable, problem.retry_after) == ("PROVIDER_ERROR", True, 3600)
    assert "no model answered; small: " in problem.message
    assert "; large: " in problem.message


def test_wait_that_the_calls_limit_does_not_allow_is_not_begun(lab, servers, profile):
    servers[0].plays(busy(20))
    servers[1].plays(PROTOCOL.answer("hello"))
    profile(tier_limit=10_000)
    with lab.session() as session:
        assert ask(session).value["text"] == "hello"
    assert attempts(lab) == ["model/small", "model/large"]


@pytest.mark.parametrize("status", [401, 400, 404])
def test_error_that_asking_again_cannot_mend_ends_the_call(lab, servers, profile, status):
    servers[0].plays(PROTOCOL.refusal("no", status))
    profile()
    with lab.session() as session:
        problem = ask(session).error
    assert (problem.code, problem.retryable) == ("PROVIDER_ERROR", False)
    assert attempts(lab) == ["model/small"]


@pytest.mark.parametrize(("codes", "goes_on"), [({}, True), ({"codes": ["NO_RULE", "INTAKE_REFUSED"]}, False)])
def test_error_whose_code_a_rule_names_goes_to_another_model(lab, servers, profile, codes, goes_on):
    servers[0].plays(PROTOCOL.refusal("no such model", 404))
    servers[1].plays(PROTOCOL.answer("hello"))
    profile(escalate=[{"when": "error", "to": "large", **codes}])
    with lab.session() as session:
        got = ask(session)
    assert isinstance(got, Ok) is goes_on
    assert attempts(lab) == ["model/small", *["model/large"] * goes_on]
    assert [each.payload["retryable"] for each in lab.all("llm.error")][:1] == [False]


def test_last_error_of_all_models_stands_if_none_can_be_mended(lab, servers, profile):
    for each in servers:
        each.plays(PROTOCOL.refusal("no such model", 404))
    profile(escalate=[{"when": "error", "to": "large"}])
    with lab.session() as session:
        problem = ask(session).error
    assert (problem.code, problem.retryable) == ("PROVIDER_ERROR", False)
    assert attempts(lab) == ["model/small", "model/large"]


def test_denial_goes_to_no_other_model_whatever_the_rules_say(lab, servers, profile):
    profile(escalate=[{"when": "error", "to": "large"}])
    head = "schema_version: v1\nid: few\nkind: budget\nmatch: {kind: [model]}\n"
    lab.write("policies/few.yaml", f"{head}limits: {{calls: {{model/small: 0}}}}\n")
    with lab.session() as session:
        assert ask(session).error.code == "GATE_DENIED"
    assert [each.bodies for each in servers] == [[], []]


def test_request_without_a_rule_goes_to_a_model(lab, servers, profile):
    """Rules first, and a model for what they cannot do: one entry of a profile."""
    servers[1].plays(PROTOCOL.answer("hello"))
    profile(models=["rules", "large"], escalate=[{"when": "error", "codes": ["NO_RULE"], "to": "large"}])
    lab.settings(profiles={"lab": {"models": {"rules": {"provider": "rules", "model": "rules-1"}}}})
    with lab.session() as session:
        assert ask(session).value["text"] == "hello"
    assert attempts(lab) == ["model/rules", "model/large"]


def test_ability_asks_a_tier_and_each_attempt_is_recorded_below_its_call(lab, servers, profile):
    servers[0].plays(busy(), PROTOCOL.answer("hello"))
    profile(attempts=2)
    lab.tool("wise", lambda args, ctx: ctx.call("model/mid", {**REQUEST, "model": ""})["text"], uses=["model/mid"])
    with lab.session() as session:
        assert session.call("wise", {}).value == "hello"
    asked = {each.span: each for each in lab.all("llm.request")}
    (outer,) = (each for each in asked.values() if each.parent == lab.one("tool.call").span)
    below = [each.payload["ability"] for each in asked.values() if each.parent == outer.span]
    assert (outer.payload["ability"], below) == ("model/mid", ["model/small", "model/small"])


def test_model_that_hangs_is_left_for_the_next_one(lab, servers, profile):
    servers[0].plays(hang)
    servers[1].plays(PROTOCOL.answer("hello"))
    profile(limit=300, attempts=1)
    with lab.session() as session:
        assert ask(session).value["text"] == "hello"
    assert servers[0].left.wait(10)


def test_limit_of_the_tier_ends_the_attempt_under_way(lab, servers, profile):
    servers[0].plays(hang)
    profile(tier_limit=300)
    with lab.session() as session:
        assert isinstance(ask(session), Err)
    assert servers[0].left.wait(10)
    assert [each.payload["outcome"] for each in lab.all("llm.error")] == ["cancelled", "timed_out"]


def test_open_breaker_leaves_a_model_out_until_its_time_is_over(lab, servers, profile):
    servers[0].plays(busy(), busy(), PROTOCOL.answer("back"))
    servers[1].plays(*[PROTOCOL.answer("hello")] * 2)
    profile(attempts=2, breaker={"failures": 2, "seconds": 3600})
    with lab.kernel() as kernel:
        for _ in range(2):
            with kernel.session() as session:
                assert ask(session).value["text"] == "hello"
        assert len(servers[0].bodies) == 2
    with lab.session() as session:  # another kernel
        assert ask(session).value["text"] == "back"


def test_breaker_of_all_models_open_asks_nobody_and_says_so(lab, servers, profile):
    for each in servers:
        each.plays(busy())
    profile(attempts=1, breaker={"failures": 1, "seconds": 3600})
    with lab.kernel() as kernel, kernel.session() as session:
        ask(session)
        problem = ask(session).error
    assert "small failed too often and is not asked for 3600 s" in problem.message
    assert problem.retry_after == 3600
    assert [len(each.bodies) for each in servers] == [1, 1]
    skipped = lab.all("x.fallback.skipped", session)
    assert [each.payload["model"] for each in skipped] == ["model/small", "model/large"]


def test_model_that_an_open_breaker_leaves_out_is_recorded(lab, servers, profile):
    """An auditor sees from the ledger alone why the second model was asked, and until when."""
    servers[0].plays(busy())
    servers[1].plays(*[PROTOCOL.answer("hello")] * 2)
    profile(attempts=1, breaker={"failures": 1, "seconds": 3600})
    with lab.session() as session:
        for _ in range(2):
            assert ask(session).value["text"] == "hello"
    skip, failure = lab.one("x.fallback.skipped"), lab.one("llm.error")
    outer = [each for each in lab.all("llm.request") if each.payload["ability"] == "model/mid"][1]
    assert skip.parent == outer.span
    assert attempts_below(lab, outer) == ["model/large"]
    assert {name: skip.payload[name] for name in ("model", "failures", "code")} == {
        "model": "model/small", "failures": 1, "code": "PROVIDER_ERROR",
    }  # fmt: skip
    since, until = (datetime.fromisoformat(skip.payload[name]) for name in ("since", "until"))
    assert (until - since).total_seconds() == 3600
    assert since >= datetime.fromisoformat(failure.ts)
    assert lab.verify().sound


def test_time_that_an_import_takes_does_not_count_for_the_tier(lab, profile):
    """The import takes longer than the tier's limit, by the clock of the session, and the answer is not late."""
    passed, loaded = [0.0], []

    class Slow:
        spec = HandlerSpec(effects="read", interruptible=True)

        def __init__(self, settings, host):
            pass

        def load(self):
            passed[0] += 0 if loaded else 1000
            loaded.append("slow")

        async def __call__(self, request, ctx):
            usage = {"input_tokens": 1, "output_tokens": 1}
            answer = {"text": "hello", "tool_calls": [], "finish_reason": "stop", "usage": usage}
            return {**answer, "model": "slow-1", "schema_version": "v2"}

    lab.offer("provider", "slow", Slow)
    profile(models=["slow"])
    lab.settings(profiles={"lab": {"models": {"slow": {"provider": "slow", "model": "slow-1"}}}})
    with lab.session() as session:
        session.door.clock = lambda: time.perf_counter() + passed[0]
        assert ask(session).value["text"] == "hello"
    assert loaded == ["slow"]
    assert [each.payload.get("late") for each in lab.all("llm.response")] == [None, None]


def test_model_that_cannot_be_imported_fails_in_its_own_call(lab, servers, profile):
    class Absent:
        spec = HandlerSpec(effects="read", interruptible=True)

        def __init__(self, settings, host):
            pass

        def load(self):
            raise ModuleNotFoundError("no such SDK")

        async def __call__(self, request, ctx):
            raise Failed("PROVIDER_ERROR", "no such SDK")

    lab.offer("provider", "absent", Absent)
    profile(models=["absent", "large"], escalate=[{"when": "error", "to": "large"}])
    lab.settings(profiles={"lab": {"models": {"absent": {"provider": "absent", "model": "absent-1"}}}})
    servers[1].plays(PROTOCOL.answer("hello"))
    with lab.session() as session:
        assert ask(session).value["text"] == "hello"
    assert [each.payload["code"] for each in lab.all("llm.error")] == ["PROVIDER_ERROR"]


def test_policy_decides_about_each_attempt_and_tells_them_apart(lab, servers, profile):
    servers[0].plays(busy(), busy())
    profile(attempts=3)
    limits = "{calls: {model/small: 2, model/mid: 1}}"
    head = "schema_version: v1\nid: few\nkind: budget\nmatch: {kind: [model]}\n"
    lab.write("policies/few.yaml", f"{head}limits: {limits}\n")
    with lab.session() as session:
        problem = ask(session).error
    assert problem.code == "GATE_DENIED"
    assert len(servers[0].bodies) == 2
    assert lab.payload("tool.denied")["name"] == "model/small"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"models": ["tiny"]}, "tier 'tiny' is not declared"),
        ({"models": ["small", "mid"]}, "tier 'mid' asks other tiers itself"),
        ({"models": []}, "settings of provider 'fallback'"),
        ({"models": ["small", "small"]}, "settings of provider 'fallback'"),
        ({"attempts": 0}, "settings of provider 'fallback'"),
        ({"breaker": {"seconds": 0}}, "settings of provider 'fallback'"),
        ({"retries": 1}, "settings of provider 'fallback'"),
        ({"escalate": [{"when": "late", "to": "large"}]}, "settings of provider 'fallback'"),
        ({"escalate": [{"when": "rework", "to": "huge"}]}, "escalate/0/to: 'huge' is not one of models (small, large)"),
        ({"escalate": [{"when": "safety", "to": "large", "after": 2}]}, "escalate/0/after: only malformed messages"),
        ({"escalate": [{"when": "safety", "to": "large", "codes": ["NO_RULE"]}]}, "escalate/0/codes: only errors have"),
        ({"escalate": [{"when": "error", "to": "large", "codes": ["GATE_DENIED"]}]}, "settings of provider 'fallback'"),
    ],
)
def test_faulty_settings_are_refused_with_their_place(lab, profile, settings, why):
    profile(**settings)
    with pytest.raises(BindingError) as caught:
        lab.session()
    assert any(why in each.message for each in caught.value.errors)
    assert all(each.place and "profiles.lab.models.mid" in each.place for each in caught.value.errors)
    assert {each.code for each in caught.value.errors} == {"BINDING_INVALID"}


def test_model_of_a_hosted_provider_needs_its_name(lab):
    model = {"provider": "ollama", "timeout_ms": 1000}
    lab.settings(profile="lab", profiles={"lab": {"models": {"small": model}}})
    with pytest.raises(BindingError, match="provider 'ollama' needs model: NAME") as caught:
        lab.session()
    assert (caught.value.error.code, caught.value.error.place) == (
        "BINDING_INVALID", ".system/deedbook.yaml: profiles.lab.models.small",
    )  # fmt: skip


def test_role_asks_the_tier_and_only_its_binding_is_counted(lab, servers, profile):
    servers[0].plays(PROTOCOL.answer("hello"))
    seen = []

    def work(args, run):
        agent = run.agent("worker")
        seen.append(agent.count_tokens({"messages": REQUEST["messages"]}, tier="mid"))
        seen.append(agent.complete({"messages": REQUEST["messages"]}, tier="mid")["text"])
        return {"reply": "done", "state": "COMPLETED"}

    lab.role("worker")
    lab.skill("greet", triggers="hello")
    lab.flow("work", work)
    profile()
    with lab.session("run") as session:
        assert isinstance(session.run("hello"), Ok)
    assert (seen[0].by, seen[1]) == ("estimate", "hello")
    inner = lab.all("llm.request")[1]
    assert (inner.actor, inner.principal, inner.payload["request"]["role"]) == ("tool", "agent:worker", "worker")


def work_once(args, run):
    """Let a worker answer once, with refused messages, as a flow with roles does."""
    Conversation(run, "worker", {"request": "hello"}, Limits(max_malformed=3)).answer("worker_report_v1")
    return {"reply": "done", "state": "COMPLETED"}


@pytest.mark.parametrize(("after", "asked"), [(1, 1), (2, 2)])
def test_role_whose_messages_were_refused_goes_on_with_a_larger_model(lab, servers, profile, after, asked):
    servers[0].plays(*[PROTOCOL.answer("no JSON")] * asked)
    servers[1].plays(PROTOCOL.answer(REPORT))
    lab.role("worker")
    lab.skill("greet", triggers="hello")
    lab.flow("work", work_once)
    profile(escalate=[{"when": "malformed", "after": after, "to": "large"}])
    lab.settings(profiles={"lab": {"roles": {"worker": "mid"}}})
    with lab.session("run") as session:
        assert isinstance(session.run("hello"), Ok)
    tiers = [each.payload["ability"] for each in lab.all("llm.request")]
    assert tiers == [*["model/mid", "model/small"] * asked, "model/mid", "model/large"]
    usage = fold(MetricsFold(), lab.events()).usage
    assert usage == {"input_tokens": 9 * (asked + 1), "output_tokens": 12 * (asked + 1)}


def test_answer_that_was_cut_off_goes_to_the_model_that_its_rule_names(lab, servers, profile):
    servers[0].plays(PROTOCOL.answer("hel", finish=PROTOCOL.finishes["max_tokens"]))
    servers[1].plays(PROTOCOL.answer("hello", finish=PROTOCOL.finishes["max_tokens"]))
    profile(escalate=[{"when": "max_tokens", "to": "large"}])
    with lab.session() as session:
        assert ask(session).value["text"] == "hello"
    assert attempts(lab) == ["model/small", "model/large"]


def test_answer_that_was_cut_off_stands_if_no_larger_model_answers(lab, servers, profile):
    servers[0].plays(PROTOCOL.answer("hel", finish=PROTOCOL.finishes["max_tokens"]))
    servers[1].plays(busy())
    profile(attempts=1, escalate=[{"when": "max_tokens", "to": "large"}])
    with lab.session() as session:
        got = ask(session).value
    assert (got["text"], got["finish_reason"]) == ("hel", "max_tokens")
    assert attempts(lab) == ["model/small", "model/large"]


@pytest.mark.parametrize(
    ("contents", "first"),
    [
        (["hello"], "small"),
        (['{"request": "x"}'], "small"),
        (['{"request": "x", "feedback": "wrong"}'], "large"),
        (['{"request": "x"}', '{"request": "x", "violation": "no JSON"}'], "small"),
        (["{broken", '["feedback"]'], "small"),
    ],
)
def test_work_that_a_reviewer_sent_back_begins_with_a_larger_model(lab, servers, profile, contents, first):
    chosen = servers[("small", "large").index(first)]
    chosen.plays(PROTOCOL.answer("hello"))
    profile(escalate=[{"when": "rework", "to": "large"}, {"when": "safety", "to": "large"}])
    with lab.session() as session:
        messages = [{"role": "user", "content": each} for each in contents]
        assert isinstance(session.call("model/mid", {**REQUEST, "messages": messages, "model": ""}), Ok)
    assert attempts(lab) == [f"model/{first}"]


def test_malformed_calls_of_all_models_are_a_malformed_message_which_a_flow_can_tell(lab, servers, profile):
    for server in servers:
        server.plays(PROTOCOL.answer("", [("echo", [1])]))
    profile(attempts=1)
    with lab.session() as session:
        error = ask(session).error
    assert (error.code, attempts(lab)) == ("MALFORMED_AGENT_MESSAGE", ["model/small", "model/large"])
    assert "large: the model's call of echo has arguments that are no JSON object" in error.message


def test_budget_tells_escalated_requests_apart(lab, servers, profile):
    servers[0].plays(PROTOCOL.answer("hel", finish=PROTOCOL.finishes["max_tokens"]))
    profile(escalate=[{"when": "max_tokens", "to": "large"}])
    head = "schema_version: v1\nid: few\nkind: budget\nmatch: {kind: [model]}\n"
    lab.write("policies/few.yaml", f"{head}limits: {{calls: {{model/large: 0}}}}\n")
    with lab.session() as session:
        assert ask(session).error.code == "GATE_DENIED"
    assert (lab.payload("tool.denied")["name"], servers[1].bodies) == ("model/large", [])


def test_declares_what_the_kernel_needs_to_know():
    assert (Fallback.spec.tiers, Fallback.spec.effects, Fallback.spec.files) == ("/models", "read", "none")
