"""A conversation with one role."""

import json
from hashlib import sha256

import pytest

from deedbook import ALLOW, Failed, Ok, deny, transform
from deedbook_flow_runcontext.conversation import Conversation, Limits

REPORT = '{"output": "done", "steps_completed": [], "tool_calls_made": [], "schema_version": "v1"}'


def test_conversation_counts_and_asks_with_the_model_of_its_tier(lab):
    found = []

    def work(args, run):
        talk = Conversation(run, "worker", {"request": args["prompt"]}, Limits(), tier="cheap")
        found.append(talk.count_tokens("worker_report_v1"))
        found.append(talk.answer("worker_report_v1"))
        return {"reply": "done", "state": "COMPLETED"}

    lab.role("worker", "You work.")
    lab.skill("greet", triggers="hello")
    lab.model(lambda request, ctx: "this one is not asked")
    lab.model(lambda request, ctx: REPORT, tier="cheap")
    lab.flow("work", work)
    with lab.session("run") as session:
        assert isinstance(session.run("hello"), Ok)
    count, report = found
    assert report["output"] == "done"
    assert (count.by, count.tokens > 20) == ("estimate", True)
    assert [each.payload["ability"] for each in lab.all("llm.request")] == ["model/cheap"]


LONG = "x" * 2000


@pytest.fixture
def worker(lab):
    """Return what lets a worker use ``echo`` twice and report, with a limit of the prompt; it returns its requests."""
    requests, failures = [], []

    def answer(request, ctx):
        requests.append(request["messages"])
        usage = {"input_tokens": 1, "output_tokens": 1}
        more = {"usage": usage, "model": "m", "schema_version": "v2"}
        if len(requests) > 2:
            return {"text": REPORT, "tool_calls": [], "finish_reason": "stop", **more}
        calls = [{"id": f"t{len(requests)}", "name": "echo", "args": {}}]
        return {"text": "", "tool_calls": calls, "finish_reason": "tool_use", **more}

    def go(most):
        def work(args, run):
            talk = Conversation(run, "worker", {"request": "hello"}, Limits(max_prompt_tokens=most), acts=True)
            try:
                talk.answer("worker_report_v1")
            except Failed as failure:
                failures.append(failure)
            return {"reply": "done", "state": "COMPLETED"}

        lab.tool("echo", lambda args, ctx: LONG)
        lab.role("worker", "You work.")
        lab.skill("greet", allows="echo", triggers="hello")
        lab.model(answer)
        lab.flow("work", work)
        with lab.session("run") as session:
            assert isinstance(session.run("hello"), Ok)
        return requests, failures

    return go


def shortened(lab):
    """Return the notes about prompts that were shortened."""
    return [
        each.payload["data"] for each in lab.all("context.noted") if each.payload["event_type"] == "prompt.shortened"
    ]


def test_prompt_within_the_limit_stays_as_it_is(lab, worker):
    requests, failures = worker(5000)
    assert (len(requests), failures, shortened(lab)) == (3, [], [])
    assert requests[2][3]["content"] == requests[2][5]["content"] == f'"{LONG}"'


def test_oldest_results_are_left_out_and_recorded(lab, worker):
    seen = []
    lab.hook("watch", "PreCompact", lambda subject, *more: seen.append(len(subject["messages"])) or ALLOW)
    requests, failures = worker(800)
    assert (len(requests), failures, seen) == (3, [], [6])
    first, last = requests[2][3], requests[2][5]
    assert json.loads(first["content"]) == {"left_out": "2002 bytes, for the prompt's limit of tokens"}
    assert last["content"] == f'"{LONG}"'
    (note,) = shortened(lab)
    digest = sha256(f'"{LONG}"'.encode()).hexdigest()
    assert note["left_out"] == [{"role": "tool", "call": "t1", "digest": digest, "size": 2002}]
    assert (note["budget"], note["tokens"]["by"]) == (800, "estimate")
    assert note["tokens"]["after"] <= 800 < note["tokens"]["before"]


def test_hook_may_refuse_that_anything_is_left_out(lab, worker):
    lab.hook("keep", "PreCompact", lambda subject, *more: deny("keep it all"))
    requests, (failure,) = worker(800)
    assert (failure.code, len(requests), shortened(lab)) == ("GATE_DENIED", 2, [])


def test_hook_may_shorten_the_messages_itself(lab, worker):
    def shorten(subject, *more):
        return transform({"messages": [*subject["messages"][:2], {"role": "user", "content": "two results"}]})

    lab.hook("shorten", "PreCompact", shorten, rewrites=True)
    requests, failures = worker(800)
    assert (requests[2][2:], failures) == ([{"role": "user", "content": "two results"}], [])
    (note,) = shortened(lab)
    assert [(each["role"], each.get("call")) for each in note["left_out"]] == [
        ("assistant", None), ("tool", "t1"), ("assistant", None), ("tool", "t2"),
    ]  # fmt: skip


def test_prompt_that_cannot_be_shortened_asks_no_model(lab, worker):
    requests, (failure,) = worker(10)
    assert (failure.code, requests) == ("PROMPT_TOO_LONG", [])
    assert "10 are allowed, and nothing more can be left out; bytes of the messages: system 35, user 19" in str(failure)


@pytest.mark.parametrize(("role", "acts"), [("lead", False), ("worker", True)])
def test_instructions_and_skill_count_and_only_a_hook_shortens_them(lab, role, acts):
    seen, asked = [], []

    def shorten(subject, *more):
        system, *others = subject["messages"]
        seen.append(system["content"])
        return transform({"messages": [{**system, "content": "You work, shortly."}, *others]})

    def work(args, run):
        talk = Conversation(run, role, {"request": "hello"}, Limits(max_prompt_tokens=200), acts=acts)
        talk.answer("worker_report_v1")
        return {"reply": "done", "state": "COMPLETED"}

    lab.role(role, "You work.")
    skill = f"---\nname: greet\ndescription: d\nmetadata: {{triggers: hello}}\n---\n{LONG}\n"
    lab.write("skills/greet/SKILL.md", skill)
    lab.model(lambda request, ctx: asked.append(request["messages"][0]["content"]) or REPORT)
    lab.flow("work", work)
    lab.hook("shorten", "PreCompact", shorten, rewrites=True)
    with lab.session("run") as session:
        assert isinstance(session.run("hello"), Ok)
    assert (LONG in seen[0], asked) == (True, ["You work, shortly."])
    (note,) = shortened(lab)
    digest = sha256(seen[0].encode()).hexdigest()
    assert note["left_out"] == [{"role": "system", "digest": digest, "size": len(seen[0])}]
    assert (note["role"], note["tokens"]["before"] > 500, note["tokens"]["after"] <= 200) == (role, True, True)


def run_worker(lab, answer, work):
    """Run the flow *work*, whose worker gets the answers of *answer*."""
    lab.role("worker", "You work.")
    lab.skill("greet", triggers="hello")
    lab.model(answer)
    lab.flow("work", work)
    with lab.session("run") as session:
        assert isinstance(session.run("hello"), Ok)


@pytest.mark.parametrize(
    ("reason", "why"), [("safety", "the model refused to answer"), ("max_tokens", "the answer was cut off")]
)
def test_text_of_an_answer_that_was_refused_or_cut_off_does_not_count_even_if_it_fits(lab, reason, why):
    asked, failures = [], []
    usage = {"input_tokens": 1, "output_tokens": 1}

    def answer(request, ctx):
        asked.append(request["messages"])
        made = {"text": REPORT, "tool_calls": [], "finish_reason": reason, "usage": usage}
        return {**made, "model": "m", "schema_version": "v2"}

    def work(args, run):
        try:
            Conversation(run, "worker", {"request": "hello"}, Limits()).answer("worker_report_v1")
        except Failed as failure:
            failures.append(failure)
        return {"reply": "done", "state": "COMPLETED"}

    run_worker(lab, answer, work)
    (failure,) = failures
    assert failure.code == "MALFORMED_AGENT_MESSAGE"
    assert why in str(failure)
    assert len(asked) == 2
    assert why in json.loads(asked[1][-1]["content"])["violation"]


def test_call_whose_arguments_cannot_be_read_is_told_to_the_role_which_answers_again(lab):
    asked, found = [], []

    def answer(request, ctx):
        asked.append(request["messages"])
        if len(asked) == 1:
            why = "the model's call of echo has arguments that are no JSON object"
            raise Failed("MALFORMED_AGENT_MESSAGE", why, retryable=True)
        return REPORT

    def work(args, run):
        found.append(Conversation(run, "worker", {"request": "hello"}, Limits(), acts=True).answer("worker_report_v1"))
        return {"reply": "done", "state": "COMPLETED"}

    run_worker(lab, answer, work)
    assert found[0]["output"] == "done"
    assert [message["role"] for message in asked[1]] == ["system", "user", "user"]
    assert "call of echo has arguments" in json.loads(asked[1][-1]["content"])["violation"]
    (error,) = lab.all("llm.error")
    assert error.payload["code"] == "MALFORMED_AGENT_MESSAGE"
    assert lab.verify().sound
