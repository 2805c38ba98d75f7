"""Runs that wait for people, or whose process died, go on in the same ledger and do nothing twice."""

import time

import pytest
from persons import approving, perform_once

from deedbook import ALLOW, Err, Failed, HandlerSpec, Ok, ask
from deedbook.call.queue import open_queue
from deedbook.contract import Branch
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.reader import list_sessions
from deedbook.workspace.site import Site
from deedbook.workspace.workspace import read_workspace
from deedbook_approvals.answering import answer
from deedbook_inspect.upkeep import close_session
from deedbook_log.corrections.amending import amend

REPORT = {"output": "done", "steps_completed": [], "tool_calls_made": [], "schema_version": "v1"}


@pytest.fixture
def did():
    """Hold what the tools did, in order."""
    return []


def office_of(lab, did):
    """Give *lab* two tools and a skill; the payment of 2 needs a person."""
    lab.tool("pay", lambda args, ctx: did.append(args["sum"]) or {"paid": args["sum"]}, effects="write")
    lab.tool("look", lambda args, ctx: did.append("look") or {"seen": len(did)}, effects="read")
    lab.skill("clerk", allows="pay look", triggers="hello")
    lab.policy("people", lambda call: ask("a large sum") if call.args.get("sum") == 2 else ALLOW)
    approving(lab)


@pytest.fixture
def office(lab, did):
    """Give a lab with a flow of two payments and a branch."""
    office_of(lab, did)

    def work(args, run):
        run.context.clarify({"goal": args["prompt"]})
        run.context.plan({"steps": []})
        run.context.begin_execution()
        run.context.note("values", {"now": run.now(), "random": run.random(), "id": run.new_id()})
        run.call("pay", {"sum": 1})
        run.parallel([Branch("look", lambda b: b.call("look", {})), Branch("pay", lambda b: b.call("pay", {"sum": 3}))])
        run.call("pay", {"sum": 2})
        run.context.verify(REPORT)
        run.context.complete({"verdict": "pass"})

    lab.flow("work", work)
    return lab


def suspended(lab):
    """Run the flow up to the payment that needs a person; return the session's id."""
    with lab.session("run") as session:
        got = session.run("hello")
    assert isinstance(got, Err)
    assert got.error.code == "NEEDS_HUMAN"
    return session.id


def resume(lab, session, **options):
    with lab.kernel() as kernel, kernel.resume(session, **options) as again:
        got = again.go_on()
        if not again.ended:
            again.end(ok=isinstance(got, Ok), reason="done")
        return got


def answered(lab, session, *, approve=True):
    identity = lab.all("approval.requested", session)[-1].payload["approval"]
    return answer(lab.path, identity, approve=approve, catalogue=lab.catalogue())


def state_of(lab, session):
    with Folder.at(lab.state) as state:
        return {each.id: each.state for each in list_sessions(state)}[session]


def refused(code, function, *args, **options):
    with pytest.raises(DeedbookError) as problem:
        function(*args, **options)
    assert problem.value.error.code == code


def test_run_that_needs_a_person_is_suspended_without_an_end_or_a_denial(office):
    session = suspended(office)
    types = office.types(session)
    assert types[-3:] == ["approval.requested", "context.needs_human", "session.suspended"]
    assert "tool.denied" not in types
    assert "session.end" not in types
    assert state_of(office, session) == "suspended"
    assert office.verify(session).sound


def test_resumed_run_gets_the_same_outcomes(lab, did):
    """It asks for them before and after the call that needs a person."""
    seen = []

    def work(args, run):
        def look(branch):
            branch.call("look", {})
            first = branch.outcomes()
            branch.call("pay", {"sum": 3})
            return [first, branch.outcomes()]

        before = run.parallel([Branch("look", look)])
        seen.append([*before, run.outcomes()])
        run.call("pay", {"sum": 2})
        seen.append(run.outcomes())
        run.answer("done")

    office_of(lab, did)
    lab.flow("work", work)
    session = suspended(lab)
    answered(lab, session)
    assert resume(lab, session).value.text == "done"
    first, again, last = seen
    assert again == first
    assert [[each.ability for each in found] for found in [*first[0], last]] == [
        ["look"], ["look", "pay"], ["look", "pay", "pay"],
    ]  # fmt: skip


def test_resumed_run_gets_the_recorded_counts_and_answers_of_its_tiers(lab, did):
    class Counting:
        spec = HandlerSpec(effects="read")

        def __init__(self, settings, host):
            """Bind; there is nothing to set."""

        def __call__(self, request, ctx):
            did.append("asked")
            usage = {"input_tokens": 1, "output_tokens": 1}
            answer = {"text": "hi", "tool_calls": [], "finish_reason": "stop", "usage": usage, "model": "m"}
            return {**answer, "schema_version": "v2"}

        def count_tokens(self, request):
            did.append("counted")
            return len(did)

    seen = []

    def work(args, run):
        agent, request = run.agent("worker"), {"messages": [{"role": "user", "content": "hi"}]}
        seen.append([run.tiers(), agent.count_tokens(request, tier="cheap"), agent.complete(request, tier="cheap")])
        run.call("pay", {"sum": 2})
        seen.append(agent.count_tokens(request, tier="cheap"))
        run.answer("done")

    office_of(lab, did)
    lab.role("worker")
    lab.model(lambda request, ctx: "not asked")
    lab.offer("provider", "counting", Counting)
    lab.flow("work", work)
    lab.settings(profiles={"lab": {"models": {"cheap": {"provider": "counting", "model": "m"}}}})
    session = suspended(lab)
    answered(lab, session)
    assert resume(lab, session).value.text == "done"
    first, again, last = seen
    assert again == first
    assert (first[1].tokens, last.tokens) == (1, 4)
    assert did == ["counted", "asked", 2, "counted"]
    assert lab.verify(session).sound


def test_resumed_run_is_served_the_answer_of_the_model_that_an_open_breaker_led_to(lab, did):
    """The kernel that resumes has closed breakers; it asks none, and no model."""
    seen = []

    def fail(request, ctx):
        did.append("small")
        raise Failed("PROVIDER_ERROR", "busy", retryable=True)

    def work(args, run):
        agent = run.agent("worker")
        request = {"messages": [{"role": "user", "content": "hi"}]}
        seen.append([agent.complete(request, tier="mid")["text"] for _ in range(2)])
        run.call("pay", {"sum": 2})
        run.answer("done")

    office_of(lab, did)
    lab.role("worker")
    lab.model(fail, tier="small")
    lab.model(lambda request, ctx: did.append("large") or "hello", tier="large")
    lab.flow("work", work)
    own = {"models": ["small", "large"], "attempts": 1, "breaker": {"failures": 1, "seconds": 3600}}
    lab.settings(profiles={"lab": {"models": {"mid": {"provider": "fallback", "with": own}}}})
    session = suspended(lab)
    assert did == ["small", "large", "large"]
    answered(lab, session)
    assert resume(lab, session).value.text == "done"
    assert seen == [["hello", "hello"]] * 2
    assert did == ["small", "large", "large", 2]
    assert lab.types(session).count("x.fallback.skipped") == 1
    assert lab.verify(session).sound


def test_nothing_is_recorded_while_nobody_has_answered(office):
    session = suspended(office)
    before = office.types(session)
    refused("NEEDS_HUMAN", resume, office, session)
    assert office.types(session) == before


def test_approved_run_goes_on_at_the_call_and_does_nothing_twice(office, did):
    session = suspended(office)
    before = office.types(session)
    answered(office, session)
    got = resume(office, session)
    assert isinstance(got, Ok), got.error
    assert (got.value.text, got.value.state) == ("done", "COMPLETED")
    assert sorted(did, key=str) == [1, 2, 3, "look"]
    after = office.types(session)[len(before) :]
    assert after[:2] == ["session.resumed", "context.resumed"]
    assert after.count("tool.call") == 1
    assert after[-5:] == ["context.completed", "flow.result", "agent.reply", "skill.complete", "session.end"]
    assert state_of(office, session) == "ended"


def test_context_of_a_resumed_run_is_what_an_undisturbed_one_has(office):
    session = suspended(office)
    values = office.one("context.noted", session).payload["data"]
    answered(office, session)
    context = resume(office, session).value.context
    assert context.log[0].data == values
    assert (context.attempts, context.report) == (1, REPORT)


def test_run_of_a_named_flow_takes_no_skill_and_goes_on_with_that_flow(office, did):
    """The flow of the profile is another one, and the trigger of a skill is in the prompt."""

    def other(args, run):
        [paid] = run.parallel([Branch("pay", lambda b: b.call("pay", {"sum": 2}), skill="clerk")])
        return str((run.skill, paid))

    office.flow("other", other)
    office.flow("work", lambda args, run: pytest.fail("the flow of the profile was called"))
    with office.session("run") as session:
        assert session.run("hello", "other").error.code == "NEEDS_HUMAN"
    assert office.payload("user.message", session) == {"text": "hello", "flow": "other", "schema_version": "v2"}
    answered(office, session.id)
    assert resume(office, session.id).value.text == str((None, {"paid": 2}))
    assert "skill.invoke" not in office.types(session)


def test_prompt_for_something_that_is_no_flow_is_not_recorded(office):
    with office.session("run") as session:
        assert session.run("hello", "pay").error.message == "'pay' is no flow that keeps a context, so it cannot answer"
        assert session.run("hello", "unknown").error.code == "BINDING_INVALID"
    assert "user.message" not in office.types(session)


def test_refused_run_gets_the_refusal_as_its_answer(office, did):
    session = suspended(office)
    answered(office, session, approve=False)
    got = resume(office, session)
    assert isinstance(got, Err)
    assert got.error.code == "APPROVAL_REFUSED"
    assert 2 not in did
    assert office.one("context.failed", session).payload["reason"].startswith("APPROVAL_REFUSED")


def test_session_that_ended_and_one_without_a_run_are_not_resumed(office):
    with office.session("run") as done:
        pass
    refused("SESSION_ENDED", resume, office, done.id)
    refused("SESSION_NOT_FOUND", resume, office, "nothing")


def test_two_processes_do_not_resume_one_session(office):
    session = suspended(office)
    answered(office, session)
    with office.kernel() as kernel, kernel.resume(session) as again:
        refused("LEDGER_LOCKED", resume, office, session)
        assert isinstance(again.go_on(), Ok)


def test_flow_that_asks_for_something_else_does_nothing(office, did):
    session = suspended(office)
    answered(office, session)
    office.flow("work", lambda args, run: run.call("pay", {"sum": 100}))
    digest = ""
    with office.kernel() as kernel:
        digest = kernel.active_charter.charter.digest
    got = resume(office, session, accept_charter=digest)
    assert isinstance(got, Err)
    assert got.error.code == "RESUME_DIVERGED"
    assert 100 not in did
    assert state_of(office, session) == "suspended"


def test_another_charter_is_refused_with_the_difference_unless_it_is_accepted(office):
    session = suspended(office)
    answered(office, session)
    office.policy("more", lambda call: ALLOW)
    refused("RESUME_CHARTER_CHANGED", resume, office, session)
    with office.kernel() as kernel:
        digest = kernel.active_charter.charter.digest
    got = resume(office, session, accept_charter=digest)
    assert isinstance(got, Err), "an approval under another charter is asked for again"
    assert got.error.code == "NEEDS_HUMAN"
    assert office.all("session.resumed", session)[-1].payload["charter"] == digest
    answered(office, session)
    assert isinstance(resume(office, session), Ok)


def test_performing_the_approved_call_goes_on_with_its_run(office, did):
    session = suspended(office)
    pending = answered(office, session)
    with office.kernel() as kernel:
        done = perform_once(kernel, pending.id)
    assert done.value == {"session": session, "state": "COMPLETED", "reply": "done"}
    assert did.count(2) == 1
    assert sessions(office) == [session]


def test_recovery_leaves_a_run_that_can_be_resumed_and_names_it(office):
    session = suspended(office)
    with office.kernel() as kernel:
        found = kernel.recover()
    assert list(found.resumable) == [session]
    assert f"session {session} can be resumed: deedbook resume {session}" in found.lines()
    assert not found
    assert state_of(office, session) == "suspended"


def test_session_that_is_closed_gives_up_its_run_and_withdraws_its_request(office):
    session = suspended(office)
    identity = office.one("approval.requested", session).payload["approval"]
    assert close_session(read_workspace(office.path), session) == 1
    assert office.types(session)[-4:] == ["flow.error", "context.halted", "approval.withdrawn", "session.end"]
    with open_queue(office.state) as waiting:
        assert waiting.find(identity).withdrawn
    refused("SESSION_ENDED", resume, office, session)


def test_amendment_does_not_hide_that_a_session_is_suspended(office):
    session = suspended(office)
    seq, patch = office.one("user.message", session).seq, [{"at": "/text", "value": "hi"}]
    amend(Site.of(read_workspace(office.path)), office.schemas, session, seq, patch, reason="a slip", by="user:local")
    assert state_of(office, session) == "suspended"


def test_request_of_a_run_waits_unless_the_workspace_limits_it(office):
    session = suspended(office)
    answered(office, session)
    later = resume(office, session, clock=lambda: time.time() + 400 * 86400)
    assert isinstance(later, Ok), "a year later"


def test_expired_request_of_a_run_is_asked_again(office, did):
    office.settings(approvals={"run_expires_s": 60})
    session = suspended(office)
    (first,) = office.all("approval.requested", session)
    got = resume(office, session, clock=lambda: time.time() + 61)
    assert isinstance(got, Err)
    second = office.all("approval.requested", session)[-1]
    assert (got.error.code, second.payload["approval"] == first.payload["approval"]) == ("NEEDS_HUMAN", False)
    assert 2 not in did
    assert state_of(office, session) == "suspended"


def test_approval_that_expired_before_the_resume_is_not_used(office, did):
    office.settings(approvals={"run_expires_s": 60})
    session = suspended(office)
    answered(office, session)
    got = resume(office, session, clock=lambda: time.time() + 61)
    assert got.error.code == "NEEDS_HUMAN"
    assert 2 not in did


def sessions(lab):
    with Folder.at(lab.state) as state:
        return [each.id for each in list_sessions(state)]


def test_flow_that_goes_on_still_sees_who_approved_it(lab, did):
    """The inner flow is approved, waits for a second person inside, and is called again when that one has answered."""
    seen = []

    def inner(args, run):
        seen.append(run.approval)
        run.call("pay", {"sum": 2})
        return "paid"

    office_of(lab, did)
    lab.flow("inner", inner, gives={"type": "string"}, tags=["approval-gate"], effects="none", uses=["pay"])
    lab.flow("work", lambda args, run: run.call("inner", {}))
    lab.skill("clerk", allows="pay look inner", triggers="hello")
    session = suspended(lab)
    answered(lab, session)
    assert resume(lab, session).error.code == "NEEDS_HUMAN"
    answered(lab, session)
    assert isinstance(resume(lab, session), Ok)
    first = lab.all("approval.requested", session)[0].payload["approval"]
    assert [(each.id, each.approver) for each in seen] == [(first, "ada")] * 2
