"""What flows are given: roles at work, messages that are checked, and no way round the door."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from deedbook import ALLOW, Err, Failed, HandlerSpec, Ok
from deedbook.contract import Branch, TokenCount

ECHO = {"id": "t1", "name": "echo", "args": {"text": "hi"}}


def failure(function, *args, **more):
    """Call what has to fail; return its `Failed`."""
    with pytest.raises(Failed) as caught:
        function(*args, **more)
    return caught.value


@pytest.fixture
def flow(lab):
    """Declare tools, two tiers of models, two roles and a skill that allows echo; return a function that runs a flow.

    The flow is a function of the run; the prompt names the skill or does not. What it returns, or raises, is what the
    caller of the session gets.
    """
    lab.tool("echo", lambda args, ctx: args)
    lab.tool("remove", lambda args, ctx: pytest.fail("nobody allows this"))
    lab.model(lambda request, ctx: said(request))
    lab.model(lambda request, ctx: "the costly one", tier="large")
    lab.settings(profiles={"lab": {"roles": {"lead": "large"}}})
    for role in ("lead", "worker"):
        lab.role(role, f"You are the {role}.")
    lab.skill("greet", allows="echo", triggers="hello")

    def said(request):
        asked = [message["content"] for message in request["messages"]]
        return json.loads(asked[-1]) if asked[-1].startswith("[") else asked[-1]

    def go(function, prompt="hello"):
        results = []

        def work(args, run):
            results.append(function(run))
            return {"reply": "done", "state": "COMPLETED"}

        lab.flow("work", work)
        with lab.session("run") as session:
            got = session.run(prompt)
        assert isinstance(got, Ok), got.error
        return results[0]

    return go


def reply_of(session, got):
    """Return the reply of the run that a call's result refers to."""
    return session.context(got.value["context"]).reply


def ask(agent, content="hi", **more):
    """Let a role's model say *content*, or ask for the calls that it lists."""
    said = content if isinstance(content, str) else json.dumps(content)
    return agent.complete({"messages": [{"role": "user", "content": said}], **more})


# --- roles ------------------------------------------------------------------------------------------------------------


def test_hand_over_is_recorded_with_where_it_came_from(lab, flow):
    flow(lambda run: [run.agent("lead").role, run.agent("worker").role])
    told = lab.all("agent.transition")
    assert [(each.payload["from"], each.payload["to"]) for each in told] == [
        (None, "lead"),
        ("lead", "worker"),
        ("worker", "DONE"),
    ]
    assert {each.parent for each in told} == {lab.one("flow.call").span}


def test_role_without_instructions_cannot_be_handed_over_to(lab, flow):
    assert flow(lambda run: failure(run.agent, "boss").code) == "BINDING_INVALID"
    assert "agent.transition" not in lab.types()


def test_role_speaks_with_its_own_model_in_its_own_name(lab, flow):
    assert flow(lambda run: ask(run.agent("lead"))["text"]) == "the costly one"
    request = lab.one("llm.request")
    assert request.parent == lab.all("agent.transition")[0].span
    assert (request.actor, request.principal) == ("agent", "agent:lead")
    said = request.payload["request"]
    assert (request.payload["ability"], said["model"], said["role"]) == ("model/large", "large-1", "lead")
    assert said["skill"]["name"] == "greet"
    assert lab.one("llm.response").parent == request.span


def test_flow_cannot_choose_the_model_the_role_the_skill_or_the_version(lab, flow):
    forged = {"model": "large-1", "role": "lead", "skill": None, "schema_version": "v1"}
    flow(lambda run: ask(run.agent("worker"), **forged))
    said = lab.payload("llm.request")
    assert said["ability"] == "model/standard"
    request = said["request"]
    assert (request["model"], request["role"], request["schema_version"]) == ("standard-1", "worker", "v2")
    assert request["skill"]["name"] == "greet"


def test_role_uses_the_tools_that_its_model_asked_for_as_children_of_the_answer(lab, flow):
    def work(run):
        agent = run.agent("worker")
        return agent.use(ask(agent, [ECHO])["tool_calls"][0])

    assert flow(work) == {"text": "hi"}
    call = lab.one("tool.call")
    assert call.parent == lab.one("llm.response").span
    assert (call.actor, call.principal) == ("agent", "agent:worker")


def test_agents_act_for_the_one_who_asked(lab, flow):
    seen = []
    lab.hook("look", "PreToolUse", lambda call: seen.append((call.principal, call.role, call.skill)) or ALLOW)

    def work(run):
        agent = run.agent("worker")
        agent.use(ask(agent, [ECHO])["tool_calls"][0])

    flow(work)
    principal, role, skill = seen[-1]
    assert (principal.id, principal.on_behalf_of, role, skill) == ("agent:worker", "local", "worker", "greet")


def test_role_is_offered_the_tools_of_its_skill_and_no_model(flow):
    assert flow(lambda run: [tool["name"] for tool in run.agent("worker").tools()]) == ["echo"]


# --- tiers ------------------------------------------------------------------------------------------------------------


def test_flow_asks_another_tier_of_the_profile(lab, flow):
    assert flow(lambda run: ask_tier(run.agent("worker"), "large")["text"]) == "the costly one"
    said = lab.payload("llm.request")
    assert (said["ability"], said["request"]["model"], said["request"]["role"]) == ("model/large", "large-1", "worker")
    assert lab.verify().sound


def test_run_knows_the_tiers_of_its_profile(flow):
    assert flow(lambda run: run.tiers()) == {"standard", "large"}


def test_unknown_tier_is_refused_and_not_recorded(lab, flow):
    def work(run):
        agent = run.agent("worker")
        counted = failure(agent.count_tokens, {"messages": []}, tier="larg")
        return [failure(ask_tier, agent, "larg"), counted]

    for problem in flow(work):
        assert problem.code == "NOT_AVAILABLE"
        assert "'larg'" in str(problem)
        assert "large, standard" in str(problem)
    assert not {"llm.request", "tool.denied", "run.value"} & set(lab.types())


def test_tokens_are_counted_by_the_provider_that_can(lab, flow):
    class Counting:
        spec = HandlerSpec(effects="read")

        def __init__(self, settings, host):
            self.answer = settings["answer"]

        def __call__(self, request, ctx):
            pytest.fail("it is not asked")

        def count_tokens(self, request):
            assert (request["model"], request["schema_version"]) == ("m", "v2")
            return 1 // self.answer if self.answer == 0 else self.answer

    lab.offer("provider", "counting", Counting)
    answers = {"own": 7, "negative": -1, "text": "7", "none": None, "broken": 0}
    tiers = {name: {"provider": "counting", "model": "m", "with": {"answer": value}} for name, value in answers.items()}
    lab.settings(profiles={"lab": {"models": tiers}})

    def work(run):
        agent = run.agent("worker")
        request = {"messages": [{"role": "user", "content": "x" * 400}]}
        return {name: agent.count_tokens(request, tier=name) for name in [*answers, None]}

    counts = flow(work)
    assert counts.pop("own") == TokenCount(7, "provider")
    assert {each.by for each in counts.values()} == {"estimate"}
    assert all(100 < each.tokens < 120 for each in counts.values())
    recorded = [each.payload for each in lab.all("run.value")]
    assert recorded[0] == {"kind": "tokens", "value": {"tokens": 7, "by": "provider"}, "schema_version": "v2"}
    assert len(recorded) == len(answers) + 1
    assert lab.verify().sound


def test_request_that_intake_refuses_is_not_counted(lab, flow):
    request = {"messages": [{"role": "user", "content": float("nan")}]}
    problem = flow(lambda run: failure(run.agent("worker").count_tokens, request))
    assert problem.code == "INTAKE_REFUSED"
    assert "run.value" not in lab.types()


def ask_tier(agent, tier):
    """Let the model of *tier* say something."""
    return agent.complete({"messages": [{"role": "user", "content": "hi"}]}, tier=tier)


# --- ways round the scope ---------------------------------------------------------------------------------------------


CHANGED = {
    "another tool": {**ECHO, "name": "remove"},
    "other arguments": {**ECHO, "args": {"text": "bye"}},
    "an unknown id": {**ECHO, "id": "t2"},
    "nothing": {},
}


@pytest.mark.parametrize("name", CHANGED)
def test_call_that_the_model_did_not_ask_for_is_refused_and_recorded(lab, flow, name):
    def work(run):
        agent = run.agent("worker")
        ask(agent, [ECHO])
        return failure(agent.use, CHANGED[name]).code

    assert flow(work) == "TOOL_NOT_ALLOWED"
    denied = lab.one("tool.denied")
    assert denied.parent == lab.one("llm.response").span
    assert "tool.call" not in lab.types()


def test_call_that_the_model_asked_for_is_made_once(lab, flow):
    def work(run):
        agent = run.agent("worker")
        call = ask(agent, [ECHO])["tool_calls"][0]
        agent.use(call)
        return failure(agent.use, call).code

    assert flow(work) == "TOOL_NOT_ALLOWED"
    assert len(lab.all("tool.call")) == 1


def test_calls_with_one_id_are_each_their_own(lab, flow):
    twice = [ECHO, {**ECHO, "args": {"text": "bye"}}]

    def work(run):
        agent = run.agent("worker")
        return [agent.use(call)["text"] for call in ask(agent, twice)["tool_calls"]]

    assert flow(work) == ["hi", "bye"]


def test_call_of_an_earlier_answer_is_refused(lab, flow):
    def work(run):
        agent = run.agent("worker")
        call = ask(agent, [ECHO])["tool_calls"][0]
        ask(agent)
        return failure(agent.use, call).code

    assert flow(work) == "TOOL_NOT_ALLOWED"


def test_changing_the_answer_changes_nothing_about_what_was_asked_for(lab, flow):
    def work(run):
        agent = run.agent("worker")
        response = ask(agent, [ECHO])
        response["tool_calls"][0]["name"] = "remove"
        return failure(agent.use, response["tool_calls"][0]).code

    assert flow(work) == "TOOL_NOT_ALLOWED"


def test_model_that_asks_for_a_tool_outside_the_skill_is_refused_by_the_door(lab, flow):
    def work(run):
        agent = run.agent("worker")
        return failure(agent.use, ask(agent, [{**ECHO, "name": "remove"}])["tool_calls"][0]).code

    assert flow(work) == "TOOL_NOT_ALLOWED"
    assert lab.payload("tool.denied")["by"] == {"scope": "what skill greet allows"}


@pytest.mark.parametrize("name", ["remove", "model/standard", "model/large", "nothing"])
def test_flow_itself_has_its_skills_scope_and_no_model(lab, flow, name):
    code = flow(lambda run: failure(run.call, name, {"messages": [], "text": ""}).code)
    assert code == ("TOOL_NOT_FOUND" if name == "nothing" else "TOOL_NOT_ALLOWED")
    assert not {"tool.call", "llm.request"} & set(lab.types())


def test_flow_uses_what_its_skill_allows(lab, flow):
    assert flow(lambda run: run.call("echo", {"text": "hi"})) == {"text": "hi"}
    assert lab.one("tool.call").parent == lab.one("flow.call").span


def test_flow_cannot_put_itself_under_another_skill_or_a_role_into_another(flow):
    def work(run):
        agent = run.agent("worker")
        for owner, name, value in ((run, "skill", None), (agent, "role", "lead")):
            with pytest.raises(AttributeError):
                setattr(owner, name, value)
        agent.tools()[0]["schema_in"]["type"] = "spoiled"
        return agent.tools()[0]["schema_in"]["type"]

    assert flow(work) != "spoiled"


def test_without_a_skill_nothing_is_in_scope(lab, flow):
    def work(run):
        agent = run.agent("worker")
        assert run.skill is None
        assert agent.tools() == []
        refused = failure(agent.use, ask(agent, [ECHO])["tool_calls"][0])
        return [refused.code, failure(run.call, "echo", {"text": "hi"}).code]

    assert flow(work, "goodbye") == ["TOOL_NOT_ALLOWED", "TOOL_NOT_ALLOWED"]
    assert "skill.invoke" not in lab.types()
    assert "tool.call" not in lab.types()


def test_flow_that_a_person_calls_has_no_skill_and_so_nothing_in_scope(lab):
    lab.tool("echo", lambda args, ctx: args)
    lab.flow("work", lambda args, run: failure(run.call, "echo", {}).code)
    with lab.session() as session:
        assert reply_of(session, session.call("work", {})) == "TOOL_NOT_ALLOWED"


def test_nested_flow_does_not_widen_the_scope(lab, flow):
    lab.flow("inner", lambda args, run: run.call("remove", {}))
    lab.skill("greet", allows="echo inner", triggers="hello")
    assert flow(lambda run: failure(run.call, "inner", {}).code) == "TOOL_NOT_ALLOWED"
    assert "tool.call" not in lab.types()


def test_role_that_is_kept_can_do_nothing_after_the_run(lab, flow):
    kept = []

    def work(run):
        kept.append(run.agent("worker"))
        kept.append(ask(kept[0], [ECHO])["tool_calls"][0])

    lab.flow("work", lambda args, run: work(run) or {"reply": "", "state": "COMPLETED"})
    with lab.session() as session:
        session.run("hello")
        assert failure(kept[0].use, kept[1]).code == "TOOL_NOT_ALLOWED"
        assert failure(ask, kept[0]).code == "TOOL_NOT_ALLOWED"
        assert kept[0].tools() == []
    assert "tool.call" not in lab.types()


# --- messages and reports ---------------------------------------------------------------------------------------------


ADVICE = {"advice": "ask her", "schema_version": "v1"}


def test_message_is_the_json_that_its_schema_demands(lab, flow):
    def work(run):
        agent = run.agent("worker")
        return agent.message("advice_v1", ask(agent, json.dumps(ADVICE)))

    assert flow(work) == ADVICE
    assert "schema.violation" not in lab.types()


BROKEN = {
    "prose": "Here is my advice: ask her.",
    "cut off": '{"advice": "ask',
    "a string": '"ask her"',
    "a fence": '```json\n{"advice": "x", "schema_version": "v1"}\n```',
    "twice": '{"advice": "x", "advice": "y", "schema_version": "v1"}',
    "NaN": '{"advice": NaN, "schema_version": "v1"}',
    "the wrong type": '{"advice": 1, "schema_version": "v1"}',
    "another version": '{"advice": "x", "schema_version": "v2"}',
    "deep": "{" + '"a":{' * 70 + "}" * 71,
    "nothing": "",
}


@pytest.mark.parametrize("name", BROKEN)
def test_malformed_message_is_recorded_under_the_answer_and_refused(lab, flow, name):
    def work(run):
        agent = run.agent("worker")
        return failure(agent.message, "advice_v1", ask(agent, BROKEN[name])).code

    assert flow(work) == "MALFORMED_AGENT_MESSAGE"
    violation = lab.one("schema.violation")
    assert violation.parent == lab.one("llm.response").span
    assert (violation.payload["subject"], violation.payload["role"], violation.payload["schema"]) == (
        "message",
        "worker",
        "advice_v1",
    )
    assert violation.payload["errors"]


def test_many_faults_of_a_message_are_recorded_up_to_a_bound(lab, flow):
    plan = {"steps": [1] * 100, "risks": [], "needs_advisor": False, "schema_version": "v1"}

    def work(run):
        agent = run.agent("worker")
        failure(agent.message, "plan_v1", ask(agent, json.dumps(plan)))

    flow(work)
    assert len(lab.payload("schema.violation")["errors"]) <= 20


def test_flow_records_a_workers_report_and_nothing_else_of_its_own(lab, flow):
    report = {"output": "x", "steps_completed": [], "tool_calls_made": [], "schema_version": "v1"}

    def work(run):
        run.record("worker.report", report)
        return [
            failure(run.record, "session.end", {"ok": True, "reason": ""}).code,
            failure(run.record, "tool.result", {"result": 1, "tool_name": "echo"}).code,
            failure(run.record, "worker.report", {"output": 1}).code,
        ]

    assert flow(work) == ["NOT_AVAILABLE", "NOT_AVAILABLE", "SCHEMA_VIOLATION"]
    recorded = lab.all("worker.report")[0]
    assert recorded.payload == report
    assert recorded.parent == lab.one("flow.call").span


def test_model_that_answers_outside_the_contract_is_an_error_for_its_role(lab):
    lab.model(lambda request, ctx: {"text": 1})
    lab.role("worker")
    lab.flow("work", lambda args, run: failure(ask, run.agent("worker")).code)
    with lab.session() as session:
        assert reply_of(session, session.call("work", {})) == "SCHEMA_VIOLATION"
    assert lab.payload("llm.response")["response"]["text"] == 1
    assert lab.payload("schema.violation")["subject"] == "result"


def test_usage_that_a_model_makes_up_is_refused(lab):
    lab.model(lambda request, ctx: {"text": "", "usage": {"input_tokens": -5, "output_tokens": 1}})
    lab.role("worker")
    lab.flow("work", lambda args, run: failure(ask, run.agent("worker")).code)
    with lab.session() as session:
        assert reply_of(session, session.call("work", {})) == "SCHEMA_VIOLATION"


def test_model_that_fails_fails_its_role_and_the_record_says_so(lab):
    def fail(request, ctx):
        raise Failed("PROVIDER_ERROR", "overloaded", retryable=True)

    lab.model(fail)
    lab.role("worker")
    lab.flow("work", lambda args, run: ask(run.agent("worker")))
    with lab.session() as session:
        got = session.call("work", {})
    assert isinstance(got, Err)
    assert (got.error.code, got.error.retryable) == ("PROVIDER_ERROR", True)
    assert lab.payload("llm.error")["code"] == lab.payload("flow.error")["code"] == "PROVIDER_ERROR"


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda run: run.call("echo", {}),
        lambda run: run.new_id(),
        lambda run: run.agent("worker"),
        lambda run: run.parallel([Branch("one", lambda own: own.call("echo", {}))]),
        lambda run: run.context.note("a note", {}),
    ],
    ids=["call", "value", "role", "parallel", "context"],
)
def test_thread_beside_parallel_asks_for_nothing(lab, flow, ask):
    def work(run):
        with ThreadPoolExecutor(1) as pool:
            return failure(lambda: pool.submit(ask, run).result())

    refused = flow(work)
    assert (refused.code, "run.parallel" in str(refused)) == ("NOT_AVAILABLE", True)
    assert not {"tool.call", "run.value", "run.branch", "agent.transition", "context.noted"} & {*lab.types()}


def test_role_and_branch_are_asked_in_their_own_thread_only(lab, flow):
    def work(run):
        agent = run.agent("worker")

        def branch(own):
            assert own.call("echo", {"text": "own"}) == {"text": "own"}
            outer = failure(run.call, "echo", {"text": "outer"})
            return outer.code, failure(agent.complete, {"messages": []}).code

        codes, _ = run.parallel([Branch("one", branch), Branch("other", lambda own: None)])
        return codes, agent.complete({"messages": [{"role": "user", "content": "hi"}]})["text"]

    assert flow(work) == (("NOT_AVAILABLE", "NOT_AVAILABLE"), "hi")
    assert [event.payload["args"]["text"] for event in lab.all("tool.call")] == ["own"]


def test_only_branch_may_ask_the_run_that_waits_for_it(lab, flow):
    """Nothing else asks at that time, so the order of requests is that of the branch."""

    def work(run):
        def inner(own):
            with ThreadPoolExecutor(1) as pool:
                beside = failure(lambda: pool.submit(run.call, "echo", {}).result())
            return [run.call("echo", {"text": "outer"}), beside.code]

        (told,) = run.parallel([Branch("one", lambda own: own.parallel([Branch("inner", inner)])[0])])
        return told

    assert flow(work) == [{"text": "outer"}, "NOT_AVAILABLE"]


def test_coroutine_of_a_flow_asks_in_the_thread_of_its_loop_only(lab):
    async def work(args, run):
        told.append(await run.acall("echo", {"text": "hi"}))
        with pytest.raises(Failed) as refused:
            await asyncio.to_thread(run.call, "echo", {"text": "beside"})
        told.append(refused.value.code)
        return {"reply": "done", "state": "COMPLETED"}

    told = []
    lab.tool("echo", lambda args, ctx: args)
    lab.skill("greet", allows="echo", triggers="hello")
    lab.flow("work", work)
    with lab.session("run") as session:
        assert isinstance(session.run("hello"), Ok)
    assert told == [{"text": "hi"}, "NOT_AVAILABLE"]
