"""Approvals: a call that a person has to decide is parked, answered by somebody else with a key, and performed once."""

import asyncio
import gc
import inspect
import os
import signal
import sys
import threading
import time
from contextlib import suppress

import pytest
from commandline import SECONDS, until
from persons import approving, perform_once

from deedbook import Approval, Err, Ok, allow, ask, deny, transform
from deedbook.call.approval_wait import ApprovalWait
from deedbook.call.handlers import Outcome
from deedbook.call.queue import open_queue
from deedbook.contract import Principal
from deedbook.format.errors import DeedbookError
from deedbook.format.events import timestamp
from deedbook.format.reader import read
from deedbook.policy.requests import shown_digest
from deedbook_approvals.answering import answer


@pytest.fixture
def ran():
    return []


@pytest.fixture
def office(lab, ran):
    """Give a lab in which `pay` asks, ada approves, and *ran* says what was paid."""
    lab.tool("pay", lambda args, ctx: ran.append(args) or {"paid": args["to"]}, effects="write", tags=["approval-gate"])
    approving(lab)
    return lab


def park(lab, args=None, **options):
    """Ask for a payment in a session of its own and return the request's id."""
    with lab.session(**options) as session:
        result = session.call("pay", args or {"to": "bob"})
    assert isinstance(result, Err)
    asked = lab.payload("approval.requested", session)
    assert asked["approval"] in result.error.message
    return asked["approval"]


def answered(lab, identity, *, approve=True, **options):
    return answer(lab.path, identity, approve=approve, catalogue=lab.catalogue(), **options)


def perform(lab, identity):
    with lab.kernel() as kernel:
        return perform_once(kernel, identity)


def refused(code, function, *args, **options):
    with pytest.raises(DeedbookError) as problem:
        function(*args, **options)
    assert problem.value.error.code == code
    return str(problem.value)


def own(lab):
    """Return the events of the workspace ledger."""
    return list(read(lab.state / "workspace"))


# --- parking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["hook", "policy", "rewriter", "tag"])
def test_ask_parks_the_call_in_both_ledgers_and_ends_it_as_before(lab, ran, way):
    lab.tool("pay", lambda args, ctx: ran.append(args), tags=["approval-gate"] if way == "tag" else [])
    if way == "policy":
        lab.policy("p", lambda call: ask("look at this"))
    elif way != "tag":
        lab.hook("h", "PreToolUse", lambda call: ask("look at this"), rewrites=way == "rewriter")
    identity = park(lab)
    mine = lab.payload("approval.requested")
    assert [dict(event.payload) for event in own(lab) if event.type == "approval.requested"] == [dict(mine)]
    assert mine["shown"] == shown_digest(mine)
    assert (mine["name"], mine["args"], mine["approval"]) == ("pay", {"to": "bob"}, identity)
    denied = lab.payload("tool.denied")
    assert (denied["code"], ran) == ("NEEDS_HUMAN", [])
    assert identity in denied["reason"]


def test_request_names_the_rule_its_place_and_what_the_call_may_do(office):
    office.settings(policies={"careful": {"kind": "rules", "rules": [{"match": {}, "then": "ask", "reason": "look"}]}})
    park(office)
    asked = office.payload("approval.requested")
    assert asked["reason"] == "look"
    assert asked["by"]["policy"] == "careful"
    assert asked["by"]["rule"].startswith(".system/deedbook.yaml:")
    assert (asked["effects"], asked["tags"], asked["scope"]["names"]) == ("write", ["approval-gate"], None)


# --- answering and performing -----------------------------------------------------------------------------------------


def test_approved_call_is_performed_once_in_a_linked_session(office, ran):
    identity = park(office)
    answered(office, identity, note="fine with me")
    assert perform(office, identity) == Ok({"paid": "bob"})
    assert ran == [{"to": "bob"}]
    (session,) = {place.parent.name for place in office.state.glob("sessions/*/.events.jsonl")} - {
        office.ledger().parent.name
    }
    types = office.types(session)
    assert types == [
        "session.start", "approval.resumed", "approval.requested", "approval.granted", "tool.call", "tool.result",
        "session.end",
    ]  # fmt: skip
    link = office.payload("approval.resumed", session)
    assert (link["session"], link["approval"]) == (office.ledger().parent.name, identity)
    granted, call = office.one("approval.granted", session), office.one("tool.call", session)
    assert call.parent == granted.span
    taken = next(event for event in own(office) if event.type == "approval.answered")
    assert granted.payload["seq"] == taken.seq
    assert "fine with me" in taken.payload["signed"]
    refused("APPROVAL_USED", perform, office, identity)
    assert len(ran) == 1


def test_approval_that_another_process_used_meanwhile_is_used_and_no_fault_of_the_ledger(office, ran):
    identity = park(office)
    answered(office, identity)
    with office.kernel() as kernel, open_queue(kernel.site.state) as waiting:
        pending = waiting.find(identity)
        perform(office, identity)
        told = refused("APPROVAL_USED", kernel.pending_calls().take, pending, waiting, timestamp(time.time()))
    assert "was approved and has been used" in told
    assert len(ran) == 1


def without_use(lab):
    """Take away the mark that an approval was used, and all that was recorded after it."""
    place = lab.state / "workspace/.events.jsonl"
    lines = place.read_bytes().splitlines(keepends=True)
    used = next(number for number, line in enumerate(lines) if b"approval.used" in line)
    place.write_bytes(b"".join(lines[:used]))


@pytest.mark.parametrize("damaged", [False, True])
def test_call_is_not_performed_again_where_the_mark_of_its_use_was_cut_away(office, ran, damaged):
    identity = park(office)
    answered(office, identity)
    perform(office, identity)
    without_use(office)
    (place,) = {each for each in office.state.glob("sessions/*/.events.jsonl") if b"tool.result" in each.read_bytes()}
    whole = place.read_bytes()
    if damaged:
        place.write_bytes(whole.replace(b"tool.call", b"tool.cold"))
    assert place.parent.name in refused("APPROVAL_USED", perform, office, identity)
    place.write_bytes(whole)
    assert len(ran) == 1


def test_denied_call_is_never_performed(office, ran):
    identity = park(office)
    answered(office, identity, approve=False, note="not today")
    assert "not today" in refused("APPROVAL_REFUSED", perform, office, identity)
    assert ran == []


def test_call_that_nobody_approved_is_not_performed(office, ran):
    refused("APPROVAL_NOT_GRANTED", perform, office, park(office))
    assert ran == []


def test_call_is_performed_as_who_asked_with_their_role_skill_and_scope(lab, ran):
    lab.tool("pay", lambda args, ctx: ran.append(ctx.principal) or 1, tags=["approval-gate"])
    approving(lab)
    lab.role("worker")
    lab.skill("go", allows="pay")
    lab.model(lambda request, ctx: [{"id": "t", "name": "pay", "args": {}}])

    def flow(args, run):
        agent = run.agent("worker")
        call = agent.complete({"messages": [{"role": "user", "content": "go"}]})["tool_calls"][0]
        agent.use(call)

    lab.flow("work", flow)
    with lab.session() as session:
        session.run("go")
    asked = lab.payload("approval.requested")
    assert (asked["principal"]["id"], asked["principal"]["on_behalf_of"]) == ("agent:worker", "local")
    assert (asked["role"], asked["skill"], asked["scope"]["names"]) == ("worker", "go", ["pay"])
    answered(lab, asked["approval"])
    assert perform(lab, asked["approval"]).value["state"] == "COMPLETED", "the run that waited goes on"
    assert ran == [Principal("agent:worker", "run", frozenset(), "local")]


def test_rewritten_call_is_judged_from_what_was_asked_and_runs_as_it_was_shown(office, ran):
    office.hook("loud", "PreToolUse", lambda call: transform({"to": call.args["to"] + "!"}), rewrites=True)
    identity = park(office)
    assert office.payload("approval.requested")["args"] == {"to": "bob!"}
    answered(office, identity)
    assert perform(office, identity) == Ok({"paid": "bob!"})
    assert ran == [{"to": "bob!"}]


def test_approval_makes_no_deny_an_allow(office, ran):
    switch = []
    office.hook("moody", "PreToolUse", lambda call: deny("not now") if switch else allow())
    identity = park(office)
    answered(office, identity)
    switch.append(1)
    result = perform(office, identity)
    assert isinstance(result, Err)
    assert (result.error.code, ran) == ("GATE_DENIED", [])
    switch.clear()
    assert perform(office, identity) == Ok({"paid": "bob"})


def test_ask_for_another_reason_is_another_request(office, ran):
    reasons = ["first"]
    office.hook("why", "PreToolUse", lambda call: ask(reasons[-1]))
    identity = park(office)
    answered(office, identity)
    reasons.append("second")
    result = perform(office, identity)
    assert isinstance(result, Err)
    assert (result.error.code, ran) == ("NEEDS_HUMAN", [])


# --- who may answer ---------------------------------------------------------------------------------------------------


def test_only_a_declared_approver_answers(office):
    identity = park(office)
    assert "ada" in refused("APPROVAL_NO_APPROVER", answered, office, identity, approver="eve")


def test_nobody_answers_a_request_of_their_own(lab):
    lab.tool("pay", lambda args, ctx: 1, tags=["approval-gate"])
    approving(lab, "ada", "bob")
    identity = park(lab, principal=Principal("ada", "cli", frozenset({"approver"})))
    refused("APPROVAL_OWN_REQUEST", answered, lab, identity, approver="ada")
    answered(lab, identity, approver="bob")


def test_who_is_acted_for_may_approve(lab):
    lab.tool("pay", lambda args, ctx: 1, tags=["approval-gate"])
    approving(lab)
    identity = park(lab, principal=Principal("bot", "stdio", frozenset(), "ada"))
    answered(lab, identity, approver="ada")
    assert perform(lab, identity) == Ok(1)


def test_key_that_is_not_the_declared_one_is_refused(office):
    from deedbook.approvals.keys import KeyRing

    identity = park(office)
    KeyRing.of(os.environ).create("ada", force=True)
    refused("APPROVAL_WRONG_KEY", answered, office, identity)


def test_second_answer_is_refused(office):
    identity = park(office)
    answered(office, identity, approve=False)
    refused("APPROVAL_ANSWERED", answered, office, identity)


def test_expired_request_is_neither_answered_nor_performed(office, monkeypatch):
    office.settings(approvals={"expires_s": 3600})
    first, second = park(office), park(office, {"to": "eve"})
    answered(office, first)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3601)
    refused("APPROVAL_EXPIRED", answered, office, second)
    refused("APPROVAL_EXPIRED", perform, office, first)


def test_another_charter_takes_all_requests_back(office):
    first, second = park(office), park(office, {"to": "eve"})
    answered(office, first)
    office.settings(approvals={"expires_s": 1800})
    refused("APPROVAL_CHARTER_CHANGED", answered, office, second)
    refused("APPROVAL_CHARTER_CHANGED", perform, office, first)


def test_unknown_request_is_said_to_be_unknown(office):
    refused("APPROVAL_NOT_FOUND", answered, office, "0" * 32)
    park(office)
    refused("APPROVAL_NOT_FOUND", answered, office, "zz")


# --- waiting ----------------------------------------------------------------------------------------------------------


def filed(lab):
    """Return the ids of the requests in the queue."""
    try:
        with open_queue(lab.state) as waiting:
            return [each.id for each in waiting]
    except DeedbookError:
        return []


def soon(lab, before=lambda: None, **options):
    """Answer the next request that is filed, from another thread, after *before* was called there."""

    def run():
        identity = until(lambda: filed(lab))[-1]
        before()
        answered(lab, identity, **options)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def is_waiting(thread):
    """Return whether *thread* waits for the answer to a request: the generator that waits has yielded a pause."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None and frame.f_code is not ApprovalWait.wait.__code__:
        frame = frame.f_back
    return frame is not None and inspect.getgeneratorstate(frame.f_locals["waiting"]) == inspect.GEN_SUSPENDED


@pytest.mark.parametrize("way", ["sync", "async"])
def test_call_that_waits_goes_on_with_the_answer(office, ran, way):
    with office.session(wait=SECONDS) as session:
        thread = soon(office)
        if way == "sync":
            result = session.call("pay", {"to": "bob"})
        else:
            result = asyncio.run(session.acall("pay", {"to": "bob"}))
        thread.join()
    assert (result, ran) == (Ok({"paid": "bob"}), [{"to": "bob"}])
    assert office.types()[1:-1] == ["approval.requested", "approval.granted", "tool.call", "tool.result"]
    assert [event.type for event in own(office) if event.type.startswith("approval.")] == [
        "approval.requested", "approval.answered", "approval.used",
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["sync", "async"])
def test_effect_of_the_caller_gets_the_values_that_the_person_saw(office, way):
    """The caller performs the effect with the ticket; what it changed of its own values meanwhile is not used."""
    given = {"to": "bob", "lines": [{"amount": 1}]}

    def change():
        given["lines"][0]["amount"] = 1_000_000
        given["to"] = "mallory"

    with office.session(wait=SECONDS) as session:
        thread = soon(office, change)
        opened = session.before("pay", given) if way == "sync" else asyncio.run(session.abefore("pay", given))
        thread.join()
        ticket = opened.value
        assert ticket.args == {"to": "bob", "lines": [{"amount": 1}]}
        ticket.args["lines"][0]["amount"] = 2
        session.after(ticket, Outcome("result", {}))
    asked, ran = office.payload("approval.requested"), office.payload("tool.call")
    assert asked["args"] == ran["args"] == {"to": "bob", "lines": [{"amount": 1}]}


def test_call_that_waits_is_denied_by_a_refusal(office, ran):
    with office.session(wait=SECONDS) as session:
        thread = soon(office, approve=False, note="no")
        result = session.call("pay", {"to": "bob"})
        thread.join()
    assert (result.error.code, ran) == ("APPROVAL_REFUSED", [])
    assert office.types()[1:-1] == ["approval.requested", "approval.refused", "tool.denied"]


def test_waiting_ends_and_the_request_stays(office, ran):
    with office.session(wait=0.1) as session:
        result = session.call("pay", {"to": "bob"})
    assert result.error.code == "NEEDS_HUMAN"
    identity = office.payload("approval.requested")["approval"]
    answered(office, identity)
    assert perform(office, identity) == Ok({"paid": "bob"})


def test_request_expires_while_it_is_waited_for(office):
    office.settings(approvals={"expires_s": 3600})
    passed = [0.0]

    def pass_time(event):
        if event.type == "approval.requested":
            passed[0] = 3601

    with office.session(wait=SECONDS, clock=lambda: time.time() + passed[0]) as session:
        session.ledger.subscribe(pass_time)
        result = session.call("pay", {"to": "bob"})
    assert result.error.code == "APPROVAL_EXPIRED"
    assert "approval.expired" in office.types()


def test_event_loop_is_free_while_a_call_waits(office):
    async def both(session):
        waiting = asyncio.ensure_future(session.acall("pay", {"to": "bob"}))
        await asyncio.to_thread(until, lambda: filed(office))
        for _ in range(100):  # a call that kept the loop would let nothing else run before it is answered
            await asyncio.sleep(0)
        assert not waiting.done()
        answered(office, filed(office)[-1])
        return await waiting

    with office.session(wait=SECONDS) as session:
        assert asyncio.run(asyncio.wait_for(both(session), SECONDS)) == Ok({"paid": "bob"})


def test_task_that_is_cancelled_while_it_waits_withdraws(office):
    async def cancelled(session):
        waiting = asyncio.ensure_future(session.acall("pay", {"to": "bob"}))
        await asyncio.to_thread(until, lambda: filed(office))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with office.session(wait=SECONDS) as session:
        asyncio.run(asyncio.wait_for(cancelled(session), SECONDS))
    assert "approval.withdrawn" in office.types()
    identity = office.payload("approval.requested")["approval"]
    refused("APPROVAL_WITHDRAWN", answered, office, identity)


def test_interrupt_while_it_waits_withdraws(office):
    main = threading.current_thread()

    def interrupt():
        until(lambda: is_waiting(main))
        os.kill(os.getpid(), signal.SIGINT)

    with office.session(wait=SECONDS) as session:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            session.call("pay", {"to": "bob"})
        thread.join()
    assert office.types()[1:-1] == ["approval.requested", "approval.withdrawn", "tool.denied"]
    assert office.payload("tool.denied")["code"] == "CANCELLED"


class Interrupt:
    """Raises `KeyboardInterrupt` once, at the *nth* call or return in the modules that file and await requests."""

    MODULES = ("approval_wait.py", "door.py", "pending_calls.py")

    def __init__(self, nth):
        self.left, self.raised = nth, False

    def __enter__(self):
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _count(self, frame, event, _):
        if self.raised or event not in ("call", "return") or not frame.f_code.co_filename.endswith(self.MODULES):
            return
        self.left -= 1
        if self.left < 0:
            self.raised = True
            raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("wait", [0.0, 0.05])
def test_interrupt_anywhere_before_the_wait_leaves_no_open_request(office, ran, wait):
    """Between filing a request and waiting for its answer, nobody was there to withdraw it."""
    ends = set()
    with office.session(wait=wait) as session:
        session.call("pay", {"to": "warm"})  # what is imported and made at the first request
        for nth in range(1000):
            begun, args = session.ledger.size, {"to": f"nobody {nth}"}
            with Interrupt(nth) as interrupt, suppress(KeyboardInterrupt):
                session.call("pay", args)
            types = [event.type for event in read(session.ledger.place)][begun:]
            (request,) = [each for each in _requests(office) if each["args"] == args] or [None]
            if not interrupt.raised:
                break
            state = None if request is None else request["state"]
            ends.add((*types, state))
    gc.collect()  # an interrupt at the return of what opens a file leaves it to the collector
    assert not ran
    assert ends <= {
        (None,),
        ("approval.requested", "approval.withdrawn", "tool.denied", None),
        ("approval.requested", "approval.withdrawn", "tool.denied", "withdrawn"),
        ("approval.requested", "tool.denied", "waiting"),  # not answered in time: it can be performed later
    }
    assert ("approval.requested", "approval.withdrawn", "tool.denied", "withdrawn") in ends
    assert nth > 20


def _requests(lab):
    with open_queue(lab.state) as waiting:
        return [{"args": each.requested.payload["args"], "state": each.state("2000")} for each in waiting]


def test_use_and_wait_for_the_same_approval_end_in_one_effect(office, ran):
    """Somebody runs what somebody else waits for: one of both performs it."""
    with office.session(wait=SECONDS) as session:
        results = []

        def race():
            soon(office).join()
            with open_queue(office.state) as waiting:
                (pending,) = waiting
            try:
                results.append(perform(office, pending.id))
            except DeedbookError as problem:
                results.append(problem.error.code)

        thread = threading.Thread(target=race)
        thread.start()
        results.append(session.call("pay", {"to": "bob"}))
        thread.join()
    assert len(ran) == 1
    assert sum(isinstance(result, Ok) for result in results) == 1


# --- what an auditor finds --------------------------------------------------------------------------------------------


def test_session_that_died_while_it_waited_is_closed_as_one_that_needs_a_person(office):
    from deedbook.workspace.workspace import read_workspace
    from deedbook_inspect.upkeep import close_session

    with office.kernel() as kernel:
        session = kernel.session(wait=0)
        session.call("pay", {"to": "bob"})
        session.ledger.close()  # as the death of the process does
        close_session(read_workspace(office.path), session.id)
    assert office.events(session)[-1].payload["reason"].startswith("NEEDS_HUMAN")


def test_secret_in_the_arguments_is_in_no_record_and_such_a_call_is_not_performed_later(office, ran, monkeypatch):
    monkeypatch.setenv("PAY_TOKEN", "s3cr3t-of-the-office")
    office.settings(secrets={"token": {"env": "PAY_TOKEN"}})
    identity = park(office, {"to": "s3cr3t-of-the-office"})
    answered(office, identity)
    refused("APPROVAL_INCOMPLETE", perform, office, identity)
    assert ran == []
    for place in office.state.rglob("*"):
        assert not place.is_file() or b"s3cr3t-of-the-office" not in place.read_bytes()


def test_several_who_answer_at_once_end_in_one_answer(office):
    identity, codes = park(office), []

    def work(word):
        try:
            answered(office, identity, approve=word)
            codes.append("first")
        except DeedbookError as problem:
            codes.append(problem.error.code)

    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == ["APPROVAL_ANSWERED"] * 7 + ["first"]
    assert sum(event.type == "approval.answered" for event in own(office)) == 1


def test_handler_sees_who_approved_its_own_call_and_no_other(lab):
    seen = {}

    def pay(args, ctx):
        seen["pay"] = ctx.approval
        return ctx.call("look", {})

    lab.tool("pay", pay, tags=["approval-gate"], uses=["look"])
    lab.tool("look", lambda args, ctx: seen.setdefault("look", ctx.approval))
    approving(lab)
    identity = park(lab)
    answered(lab, identity)
    assert isinstance(perform(lab, identity), Ok)
    assert seen == {"pay": Approval(id=identity, approver="ada"), "look": None}
