"""Flows of contract 2: contexts and their parents, standalone flows, branches, and values from outside."""

import json
import threading

import pytest

from deedbook import ALLOW, Branch, Err, Failed, HandlerSpec, deny
from deedbook.format.context import ContextFold
from deedbook.format.errors import BindingError
from deedbook.format.folds import fold
from deedbook.format.reader import read
from deedbook_testing.offered import make_handler_class

MACHINE = ["CREATED", "CLARIFIED", "SCOPED", "PLANNED", "EXECUTING", "VERIFYING"]
REPORT = {"output": "the work", "steps_completed": [], "tool_calls_made": [], "schema_version": "v1"}


@pytest.fixture
def flows(lab):
    """Declare a tool, a role with its model, and a skill that allows every flow that tests declare."""
    lab.tool("echo", lambda args, ctx: args)
    lab.tool("other", lambda args, ctx: args)
    lab.model(lambda request, ctx: request["messages"][-1]["content"])
    lab.role("worker")
    lab.skill("greet", allows="echo other inner deeper plain", triggers="hello")
    return lab


def run(lab, prompt="hello"):
    with lab.session("run") as session:
        return session.run(prompt)


def folded(lab):
    """Return the contexts of the session as a reader of its ledger sees them."""
    (ledger,) = lab.state.glob("sessions/*/.events.jsonl")
    return fold(ContextFold(), read(ledger))


def failure(function, *args):
    """Call what has to fail; return its `Failed`."""
    with pytest.raises(Failed) as caught:
        function(*args)
    return caught.value


def call_of(lab, name):
    """Return the span of the one ``flow.call`` of a flow."""
    (found,) = (each.span for each in lab.all("flow.call") if each.payload["flow"] == name)
    return found


def unfinished(lab, name, function):
    """Declare a flow whose context nobody completes after *function*."""
    lab.flow(name, function)
    lab.offer(
        "flow", f"offered-{name}", make_handler_class(function, HandlerSpec(effects="none", takes={"type": "object"}))
    )


# --- a flow with a context --------------------------------------------------------------------------------------------


def take_to(context, state):
    """Take the straight way to *state*."""
    ways = {
        "CREATED": lambda: context.clarify({"goal": "x"}),
        "CLARIFIED": lambda: context.set_scope({}),
        "SCOPED": lambda: context.plan({"steps": []}),
        "PLANNED": context.begin_execution,
        "EXECUTING": lambda: context.verify(REPORT),
    }
    while context.state != state:
        ways[context.state]()


def test_result_of_a_flow_is_a_reference_to_its_context(flows):
    flows.flow("work", lambda args, run: run.answer("done"))
    reply = run(flows).value
    call = call_of(flows, "work")
    assert flows.payload("flow.result") == {"flow": "work", "result": {"context": call}}
    assert (reply.text, reply.state, reply.context.run, reply.context.parent) == ("done", "COMPLETED", call, None)
    assert reply.context == folded(flows)[call]


def test_session_gives_the_context_of_a_run_by_its_span(flows):
    flows.flow("work", lambda args, run: run.answer("done"))
    with flows.session() as session:
        run_of = session.call("work", {"prompt": "x"}).value["context"]
        assert session.context(run_of) == folded(flows)[run_of]
        assert (session.context(run_of).reply, session.context("0" * 16)) == ("done", None)


def test_report_stands_in_one_event(flows):
    flows.flow("work", lambda args, run: take_to(run.context, "VERIFYING") or run.context.complete({}))
    assert run(flows).value.context.report == REPORT
    report = flows.one("worker.report")
    assert flows.payload("context.verifying") == {"report": report.span, "schema_version": "v2"}
    assert report.payload == REPORT
    assert [each.parent for each in (report, flows.one("context.verifying"))] == [call_of(flows, "work")] * 2
    (ledger,) = flows.state.glob("sessions/*/.events.jsonl")
    assert ledger.read_text(encoding="utf-8").count('"the work"') == 2  # in the report and in the reply


def test_report_outside_its_schema_is_refused_and_moves_nothing(flows):
    def work(args, run):
        take_to(run.context, "EXECUTING")
        assert failure(run.context.verify, {"output": 1}).code == "SCHEMA_VIOLATION"
        assert run.context.state == "EXECUTING"
        run.answer("done")

    flows.flow("work", work)
    assert run(flows).value.text == "done"


@pytest.mark.parametrize("state", MACHINE)
def test_answer_completes_the_context_from_every_state(flows, state):
    flows.flow("work", lambda args, run: take_to(run.context, state) or run.answer("done"))
    reply = run(flows).value
    assert reply.state == "COMPLETED"
    assert reply.text == ("the work" if state == "VERIFYING" else "done")


@pytest.mark.parametrize("state", MACHINE)
def test_flow_that_leaves_its_context_unfinished_fails(flows, state):
    unfinished(flows, "work", lambda args, run: take_to(run.context, state))
    got = run(flows)
    assert isinstance(got, Err)
    assert got.error.code == flows.payload("flow.error")["code"] == "FLOW_UNFINISHED"
    assert f"its context is {state}" in got.error.message
    assert folded(flows).latest_state == "FAILED"
    assert flows.payload("context.failed")["reason"].startswith("FLOW_UNFINISHED: ")


def test_flow_that_keeps_a_context_and_returns_a_result_fails(flows):
    unfinished(flows, "work", lambda args, run: run.answer("done") or {"reply": "another"})
    got = run(flows)
    assert got.error.code == "SCHEMA_VIOLATION"
    assert "return None" in got.error.message
    assert folded(flows).latest_state == "COMPLETED"


def test_flow_may_end_waiting_for_a_person(flows):
    flows.flow("work", lambda args, run: run.context.need_human("which one?"))
    reply = run(flows).value
    assert (reply.state, reply.text, reply.context.waiting) == ("NEEDS_HUMAN", "which one?", "CREATED")


def test_flow_that_raises_leaves_its_context_failed(flows):
    def work(args, run):
        run.agent("worker")
        raise Failed("PROVIDER_ERROR", "overloaded")

    flows.flow("work", work)
    assert run(flows).error.code == "PROVIDER_ERROR"
    assert flows.payload("context.failed") == {"reason": "PROVIDER_ERROR: overloaded"}
    assert [each.payload["to"] for each in flows.all("agent.transition")] == ["worker", "FAIL"]


def test_flow_with_a_bug_leaves_its_context_failed(flows):
    flows.flow("work", lambda args, run: 1 / 0)
    assert run(flows).error.code == "TOOL_ERROR"
    assert flows.payload("context.failed")["reason"].startswith("ZeroDivisionError: division by zero (")


def test_flow_that_is_cancelled_leaves_its_context_halted(flows):
    def cancel(args, run):
        raise Failed("CANCELLED", "no longer wanted")

    flows.flow("work", cancel)
    assert run(flows).error.code == "CANCELLED"
    assert flows.payload("context.halted") == {"reason": "CANCELLED: no longer wanted"}


def test_flow_that_is_interrupted_leaves_its_context_as_it_is_and_the_session_suspended(flows):
    def interrupt(args, run):
        raise KeyboardInterrupt

    flows.flow("work", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(flows)
    assert folded(flows).latest_state == "CREATED"
    assert flows.types()[-1] == "session.suspended"


def test_asynchronous_flow_keeps_a_context_too(flows):
    async def work(args, run):
        told = await run.acall("echo", {"text": "hi"})
        run.answer(told["text"])

    flows.flow("work", work)
    assert run(flows).value.text == "hi"

    async def raises(args, run):
        raise Failed("PROVIDER_ERROR", "overloaded")

    flows.flow("work", raises)
    with flows.session() as session:
        assert session.call("work", {}).error.code == "PROVIDER_ERROR"
    assert flows.payload("context.failed", session.id) == {"reason": "PROVIDER_ERROR: overloaded"}


@pytest.mark.parametrize(
    ("end", "to"),
    [("answer", "DONE"), ("fail", "FAIL"), ("halt", "FAIL"), ("need_human", "FAIL")],
)
def test_last_transition_tells_how_the_run_ended(flows, end, to):
    def work(args, run):
        run.agent("worker")
        (run.answer if end == "answer" else getattr(run.context, end))("because")

    flows.flow("work", work)
    run(flows)
    told = [(each.payload["from"], each.payload["to"]) for each in flows.all("agent.transition")]
    assert told == [(None, "worker"), ("worker", to)]
    types = flows.types()
    assert types[types.index("flow.result") - 1] == "agent.transition"


def test_flow_without_roles_records_no_transition(flows):
    flows.flow("work", lambda args, run: run.answer("done"))
    run(flows)
    assert "agent.transition" not in flows.types()


# --- nested flows -----------------------------------------------------------------------------------------------------


def test_flow_called_by_a_flow_has_a_context_of_its_own(flows):
    flows.flow("deeper", lambda args, run: run.context.fail("nothing there"))
    flows.flow("inner", lambda args, run: f"inner got {run.read_context(run.call('deeper', {})).reply}")

    def work(args, run):
        inner = run.read_context(run.call("inner", {"prompt": "x"}))
        assert (inner.state, inner.task) == ("COMPLETED", {"prompt": "x"})
        assert run.context.state == "CREATED"
        run.answer(inner.reply)

    flows.flow("work", work)
    reply = run(flows).value
    assert (reply.text, reply.context.run) == ("inner got nothing there", call_of(flows, "work"))
    contexts = folded(flows)
    parents = {name: contexts[call_of(flows, name)].parent for name in ("work", "inner", "deeper")}
    assert parents == {"work": None, "inner": call_of(flows, "work"), "deeper": call_of(flows, "inner")}
    assert [context.state for context in contexts.values()] == ["COMPLETED", "COMPLETED", "FAILED"]


def test_failure_of_a_nested_flow_is_its_callers_to_handle(flows):
    flows.flow("inner", lambda args, run: 1 / 0)
    flows.flow("work", lambda args, run: failure(run.call, "inner", {}).code)
    assert run(flows).value.text == "TOOL_ERROR"
    assert [context.state for context in folded(flows).values()] == ["COMPLETED", "FAILED"]


def test_result_that_refers_to_no_run_has_no_context(flows):
    results = [None, {}, {"context": "0" * 16}, {"context": 1}, {"context": ["x"]}, "text"]
    flows.flow("work", lambda args, run: ", ".join({failure(run.read_context, each).code for each in results}))
    assert run(flows).value.text == "NOT_AVAILABLE"


def test_context_that_was_read_does_not_change_any_more(flows):
    flows.flow("inner", lambda args, run: run.answer("x"))

    def work(args, run):
        inner = run.read_context(run.call("inner", {}))
        inner.plan["steps"].append("another")
        mine = run.context.read()
        run.context.clarify({"goal": "x"})
        assert (mine.state, run.context.state) == ("CREATED", "CLARIFIED")

    flows.flow("work", work)
    assert run(flows).value.state == "COMPLETED"
    assert folded(flows)[call_of(flows, "inner")].plan == {"steps": []}


@pytest.mark.parametrize("name", ["work", "plain"])
def test_runs_nest_at_most_sixteen_deep(flows, name):
    """A standalone flow between two that keep contexts counts as well."""
    flows.flow("plain", lambda args, run: run.call("work", args), gives={"type": "object"})

    def work(args, run):
        try:
            return str(1 + int(run.read_context(run.call(name, args)).reply))
        except Failed as problem:
            return "1" if "deep" in str(problem) else str(problem)

    flows.flow("work", work)
    flows.skill("greet", allows="work plain", triggers="hello")
    assert run(flows).value.text == {"work": "16", "plain": "8"}[name]
    assert all(each.state == "COMPLETED" for each in folded(flows).values())
    assert len(flows.all("flow.call")) == {"work": 17, "plain": 17}[name]


# --- standalone flows -------------------------------------------------------------------------------------------------


def test_standalone_flow_returns_its_result_and_has_no_context(flows):
    def plain(args, run):
        assert run.context is None
        assert failure(run.answer, "x").code == "NOT_AVAILABLE"
        return {"sum": run.call("echo", {"n": 2})["n"]}

    flows.flow("plain", plain, gives={"type": "object", "required": ["sum"]})
    flows.flow("work", lambda args, run: str(run.call("plain", {})["sum"]))
    assert run(flows).value.text == "2"
    results = [each.payload["result"] for each in flows.all("flow.result")]
    assert results == [{"sum": 2}, {"context": call_of(flows, "work")}]
    assert len(folded(flows)) == 1


def test_result_of_a_standalone_flow_is_checked(flows):
    flows.flow("plain", lambda args, run: {"sum": "two"}, gives={"properties": {"sum": {"type": "integer"}}})
    with flows.session() as session:
        assert session.call("plain", {}).error.code == "SCHEMA_VIOLATION"


def test_standalone_flow_is_no_flow_of_a_profile(flows):
    flows.flow("plain", lambda args, run: {}, gives={})
    flows.settings(profiles={"lab": {"flow": "plain"}})
    with pytest.raises(BindingError) as refused:
        flows.kernel()
    assert refused.value.error.code == "BINDING_INVALID"
    assert "keeps a context" in str(refused.value)


# --- branches ---------------------------------------------------------------------------------------------------------


def in_parallel(lab, *branches, reply=str):
    """Declare a flow that runs *branches* side by side and answers with their results."""
    lab.flow("work", lambda args, run: reply(run.parallel(list(branches))))


def test_results_of_branches_come_in_their_order(flows):
    """The second branch cannot end before the first has begun, nor the first before the second has ended."""
    begun, ended = threading.Event(), threading.Event()

    def first(run):
        begun.set()
        assert ended.wait(30)
        return run.call("echo", {"n": 1})["n"]

    def second(run):
        assert begun.wait(30)
        made = run.call("echo", {"n": 2})["n"]
        ended.set()
        return made

    in_parallel(flows, Branch("a", first), Branch("b", second))
    assert run(flows).value.text == "[1, 2]"
    branches = {each.payload["name"]: each for each in flows.all("run.branch")}
    assert [each.payload["args"] for each in flows.all("tool.call")] == [{"n": 2}, {"n": 1}]
    assert [each.parent for each in flows.all("tool.call")] == [branches["b"].span, branches["a"].span]
    assert {each.parent for each in branches.values()} == {call_of(flows, "work")}
    assert [each.payload for each in flows.all("run.branch")] == [
        {"name": "a", "allowed": None},
        {"name": "b", "allowed": None},
    ]


def test_first_failure_in_order_is_raised_after_all_branches_have_ended(flows):
    last, done = threading.Event(), []

    def first(run):
        assert last.wait(30)
        raise Failed("HTTP_FAILED", "the first")

    def second(run):
        raise Failed("PROVIDER_ERROR", "the second")

    def third(run):
        last.set()
        done.append(run.call("echo", {"n": 3}))

    in_parallel(flows, Branch("a", first), Branch("b", second), Branch("c", third))
    assert run(flows).error.message == "the first"
    assert done == [{"n": 3}]
    assert flows.payload("context.failed") == {"reason": "HTTP_FAILED: the first"}


def test_no_branches_are_no_work(flows):
    in_parallel(flows)
    assert run(flows).value.text == "[]"
    assert "run.branch" not in flows.types()


def test_too_many_branches_are_refused_before_any_begins(flows):
    in_parallel(flows, *[Branch("x", pytest.fail)] * 1001)
    assert run(flows).error.code == "NOT_AVAILABLE"
    assert "run.branch" not in flows.types()


def test_branch_may_use_only_what_it_is_allowed(flows):
    def tries(run):
        inner = run.parallel([Branch("in", lambda run: failure(run.call, "other", {}).code, allowed=["echo", "other"])])
        return [run.call("echo", {"n": 1}), failure(run.call, "other", {}).code, *inner]

    in_parallel(flows, Branch("a", tries, allowed=["echo"]), reply=lambda results: str(results[0]))
    assert run(flows).value.text == str([{"n": 1}, "TOOL_NOT_ALLOWED", "TOOL_NOT_ALLOWED"])
    outer, inner = flows.all("run.branch")
    assert (outer.payload["allowed"], inner.payload["allowed"], inner.parent) == (
        ["echo"],
        ["echo", "other"],
        outer.span,
    )
    assert {each.payload["by"]["scope"] for each in flows.all("tool.denied")} == {
        "what skill greet allows, and the branch"
    }


def test_branch_inside_one_that_is_allowed_nothing_is_allowed_nothing(flows):
    def tries(run):
        return run.parallel([Branch("in", lambda run: failure(run.call, "echo", {}).code, allowed=["echo"])])

    in_parallel(flows, Branch("a", tries, allowed=[]))
    assert run(flows).value.text == "[['TOOL_NOT_ALLOWED']]"


def test_branch_does_not_widen_the_scope(flows):
    flows.tool("secret", lambda args, ctx: pytest.fail("nobody allows this"))
    in_parallel(flows, Branch("a", lambda run: failure(run.call, "secret", {}).code, allowed=["secret"]))
    assert run(flows).value.text == "['TOOL_NOT_ALLOWED']"


def test_roles_of_branches_hand_over_and_work_under_their_branch(flows):
    def work(run):
        agent = run.agent("worker")
        return agent.complete({"messages": [{"role": "user", "content": "hi"}]})["text"], len(agent.tools())

    in_parallel(flows, Branch("a", work), Branch("b", work, allowed=["echo"]))
    assert run(flows).value.text == str([("hi", 2), ("hi", 1)])
    branches = {each.span for each in flows.all("run.branch")}
    hand_overs = flows.all("agent.transition")
    assert {each.parent for each in hand_overs} == branches
    assert [(each.payload["from"], each.payload["to"]) for each in hand_overs] == [(None, "worker")] * 2
    assert {each.parent for each in flows.all("llm.request")} == {each.span for each in hand_overs}


def test_flow_called_in_a_branch_is_nested_in_the_run(flows):
    flows.flow("inner", lambda args, run: "x")
    in_parallel(
        flows,
        Branch("a", lambda run: run.read_context(run.call("inner", {})).reply),
        Branch("b", lambda run: run.read_context(run.call("inner", {})).reply),
    )
    assert run(flows).value.text == "['x', 'x']"
    parents = [context.parent for context in folded(flows).values()]
    assert parents == [None, call_of(flows, "work"), call_of(flows, "work")]


def test_run_and_branch_know_the_outcomes_beneath_them(flows):
    """Each has those of the runs that it called; the digest is the hash of the recorded payload."""

    def inner(args, run):
        run.call("echo", {"of": run.skill.name})
        return "x"

    def once(run):
        run.call("inner", {})
        return [each.ability for each in run.outcomes()]

    def twice(run):
        run.call("other", {})
        return once(run)

    def work(args, run):
        before = run.outcomes()
        said = run.agent("worker").complete({"messages": [{"role": "user", "content": "hi"}]})["text"]
        inside = run.parallel([Branch("a", once), Branch("b", twice)])
        return str([before, inside, sorted((each.kind, each.ability) for each in run.outcomes()), said])

    flows.flow("inner", inner)
    flows.flow("work", work)
    expected = [("model", "model/standard"), ("tool", "echo"), ("tool", "other")]
    assert run(flows).value.text == str([[], [["echo"], ["other", "echo"]], expected, "hi"])


def test_digest_of_an_outcome_is_its_payload_hash(flows):
    def work(args, run):
        run.call("echo", {"a": 1})
        return " ".join(each.digest for each in run.outcomes())

    flows.flow("work", work)
    text = run(flows).value.text
    [line] = [json.loads(each) for each in flows.ledger().read_text().splitlines() if '"tool.result"' in each]
    assert text == line["payload_hash"]


def test_branch_has_no_context_of_its_own(flows):
    in_parallel(flows, Branch("a", lambda run: str(run.context)))
    assert run(flows).value.text == "['None']"


# --- branches under a skill of their own ------------------------------------------------------------------------------


def test_branch_under_a_skill_has_the_scope_of_that_skill(flows):
    """Without a skill of its own, a run may call nothing; its branch may call what the skill of the branch allows."""
    flows.skill("reader", allows="echo")
    flows.flow("work", lambda args, run: str(run.parallel([Branch("a", reads, skill="reader")])))
    with flows.session() as session:
        result = session.call("work", {})
    assert session.context(result.value["context"]).reply == str([["reader", {"n": 1}, "TOOL_NOT_ALLOWED"]])
    assert flows.payload("run.branch") == {"name": "a", "allowed": None, "skill": "reader", "schema_version": "v2"}
    assert flows.payload("tool.denied")["by"]["scope"] == "what skill reader allows"
    assert flows.verify(session.id).sound


def reads(run):
    return [run.skill.name, run.call("echo", {"n": 1}), failure(run.call, "other", {}).code]


def test_skill_of_a_branch_may_allow_no_more_than_that_of_the_run(flows):
    flows.skill("writer", allows="echo secret")
    flows.tool("secret", lambda args, ctx: pytest.fail("the skill of the run does not allow this"))
    in_parallel(flows, Branch("b", pytest.fail), Branch("a", pytest.fail, skill="writer"))
    error = run(flows).error
    assert (error.code, error.message) == (
        "TOOL_NOT_ALLOWED",
        "branch 'a': skill writer allows secret, which skill greet does not allow",
    )
    assert "run.branch" not in flows.types()


def test_branch_under_an_unknown_skill_is_refused_before_any_begins(flows):
    in_parallel(flows, Branch("a", pytest.fail, skill="gret"))
    assert run(flows).error.message == "branch 'a': no skill 'gret' in the charter; did you mean \"greet\"?"
    assert "run.branch" not in flows.types()


def test_flow_called_in_a_branch_works_under_the_skill_of_the_branch(flows):
    flows.skill("reader", allows="echo inner")
    flows.flow("inner", lambda args, run: str(reads(run)))
    in_parallel(
        flows, Branch("a", lambda run: run.read_context(run.call("inner", {})).reply, skill="reader"), reply=str
    )
    assert run(flows).value.text == str([str(["reader", {"n": 1}, "TOOL_NOT_ALLOWED"])])
    assert flows.verify().sound


def test_roles_in_a_branch_work_under_the_skill_of_the_branch(flows):
    flows.skill("reader", allows="echo")
    in_parallel(flows, Branch("a", lambda run: [t["name"] for t in run.agent("worker").tools()], skill="reader"))
    assert run(flows).value.text == "[['echo']]"


def test_hook_that_refuses_the_skill_of_a_branch_fails_the_branch(flows):
    flows.skill("reader", allows="echo")
    flows.hook("closed", "SkillStart", lambda skill, *_: deny("not today") if skill == "reader" else ALLOW)
    flows.flow(
        "work",
        lambda args, run: str(
            run.parallel([Branch("a", pytest.fail, skill="reader"), Branch("b", lambda run: 2)], return_failures=True)
        ),
    )
    assert run(flows).value.text == "[Failed('skill reader: not today'), 2]"
    assert flows.all("hook.fired")[-1].parent == flows.all("run.branch")[0].span


def test_flow_may_call_the_flows_that_its_ability_uses(flows):
    """What happens inside them stays in the scope of the skill; tools that the ability uses do not come with them."""
    flows.tool("secret", lambda args, ctx: pytest.fail("no skill allows this"))
    flows.flow("hidden", lambda args, run: failure(run.call, "secret", {}).code)
    flows.flow(
        "work",
        lambda args, run: str([run.read_context(run.call("hidden", {})).reply, failure(run.call, "secret", {}).code]),
        uses=["hidden", "secret"],
    )
    assert run(flows).value.text == "['TOOL_NOT_ALLOWED', 'TOOL_NOT_ALLOWED']"
    assert flows.verify().sound


# --- values from outside ----------------------------------------------------------------------------------------------


def test_time_random_numbers_and_ids_are_recorded(flows):
    given = []

    def work(args, run):
        given.extend([run.now(), run.random(), run.new_id(), *run.parallel([Branch("a", lambda run: run.new_id())])])

    flows.flow("work", work)
    run(flows)
    assert [each.payload["value"] for each in flows.all("run.value")] == given
    assert [each.payload["kind"] for each in flows.all("run.value")] == ["now", "random", "id", "id"]
    now, number, first, second = given
    assert now <= flows.one("session.end").ts
    assert 0 <= number < 1
    assert len({first, second}) == 2
    assert all(len(each) == 32 and int(each, 16) >= 0 for each in (first, second))
    parents = [each.parent for each in flows.all("run.value")]
    assert parents == [call_of(flows, "work")] * 3 + [flows.one("run.branch").span]


def test_flow_sees_the_mode_of_its_session(flows):
    flows.flow("work", lambda args, run: run.mode)
    assert run(flows).value.text == "interactive"
