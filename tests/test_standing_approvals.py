"""A call asked again: an approval that stands for exactly this call is taken over once, a request is not made twice.

The lab verifies every ledger when it closes, and judges every recorded call again.
"""

import asyncio
import os
import threading
import time
from contextlib import suppress

import pytest
from commandline import SECONDS, until
from persons import approving, perform_once

from deedbook import Err, Failed, Ok, ask, transform
from deedbook.approvals.keys import KeyRing
from deedbook.call.handlers import Outcome
from deedbook.call.pending_calls import PendingCalls
from deedbook.call.queue import ApprovalQueue, open_queue
from deedbook.contract import Principal
from deedbook.format.canonical import encode_payload
from deedbook.format.errors import DeedbookError
from deedbook.format.events import Entry, label, timestamp
from deedbook.format.files import Folder
from deedbook.format.reader import read
from deedbook.policy.requests import sign_answer as statement
from deedbook_approvals.answering import answer

BOB = {"to": "bob"}
SECRET = "s3cr3t-of-the-office"


@pytest.fixture
def ran():
    return []


@pytest.fixture
def office(lab, ran):
    """Give a lab in which `pay` asks, ada approves, and *ran* says what was paid."""
    lab.tool("pay", lambda args, ctx: ran.append(args) or {"paid": args["to"]}, effects="write", tags=["approval-gate"])
    approving(lab)
    return lab


def asked(session, args=None, ability="pay"):
    """Ask for a payment, be told that a person has to decide, and return the request's id."""
    result = session.call(ability, args or BOB)
    assert isinstance(result, Err)
    assert result.error.code == "NEEDS_HUMAN", result.error
    return requests(session)[-1]


def requests(session):
    """Return the ids of what a session asked a person for, in order."""
    found = read(session.ledger.place)
    return [event.payload["approval"] for event in found if event.type == "approval.requested"]


def answered(lab, identity, *, approve=True, **options):
    return answer(lab.path, identity, approve=approve, catalogue=lab.catalogue(), **options)


def states(lab, later=0):
    """Return how every request of the queue stands so many seconds *later*."""
    with open_queue(lab.state) as waiting:
        return [each.state(timestamp(time.time() + later)) for each in waiting]


def together(count, work):
    """Do *work* on so many threads at once and return what each returned, in no order."""
    results, barrier = [], threading.Barrier(count)

    def one():
        barrier.wait()
        results.append(work())

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# --- taking over ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["the same session", "another session"])
def test_call_asked_again_is_performed_under_the_approval_that_stands(office, ran, where):
    first = office.session()
    identity = asked(first)
    answered(office, identity, note="fine with me")
    session = first if where == "the same session" else office.session()
    assert session.call("pay", BOB) == Ok({"paid": "bob"})
    assert ran == [BOB]
    told = office.events(session)[-4:]
    assert [event.type for event in told] == ["approval.requested", "approval.granted", "tool.call", "tool.result"]
    assert [event.parent for event in told[1:]] == [event.span for event in told[:3]]
    assert told[0].payload == office.all("approval.requested", first)[0].payload
    assert (told[0].payload["approval"], told[0].payload["session"]) == (identity, first.id)
    assert states(office) == ["used"]


def test_approval_is_taken_over_once(office, ran):
    session = office.session()
    identity = asked(session)
    answered(office, identity)
    assert isinstance(session.call("pay", BOB), Ok)
    again = asked(session)
    assert again != identity
    assert (len(ran), states(office)) == (1, ["used", "waiting"])
    with office.kernel() as kernel, pytest.raises(DeedbookError) as problem:
        perform_once(kernel, identity)
    assert problem.value.error.code == "APPROVAL_USED"


@pytest.mark.parametrize("apart", ["arguments", "principal", "on behalf of", "reason", "charter"])
def test_approval_stands_for_exactly_that_call(office, ran, apart):
    reasons = ["look"]
    office.hook("why", "PreToolUse", lambda call: ask(reasons[-1]))
    who = Principal("bot", "test", frozenset(), "ada")
    identity = asked(office.session(principal=who))
    answered(office, identity)
    if apart == "reason":
        reasons.append("look twice")
    if apart == "charter":
        office.settings(approvals={"expires_s": 1800})
    other = {"principal": Principal("cat", "test", frozenset(), "ada"), "on behalf of": Principal("bot", "test")}
    session = office.session(principal=other.get(apart, who))
    assert asked(session, {"to": "eve"} if apart == "arguments" else BOB) != identity
    assert ran == []
    if apart != "charter":
        reasons[:] = ["look"]
        assert isinstance(office.session(principal=who).call("pay", BOB), Ok)


@pytest.mark.parametrize("end", ["denied", "expired", "withdrawn"])
def test_what_does_not_stand_is_asked_for_anew(office, ran, end):
    office.settings(approvals={"expires_s": 3600})
    later = 3601 if end == "expired" else 0
    identity = asked(office.session())
    if end == "denied":
        answered(office, identity, approve=False)
    elif end == "expired":
        answered(office, identity)
    else:
        with office.kernel() as kernel, open_queue(office.state) as waiting:
            kernel.pending_calls().withdraw(waiting.request(waiting.find(identity)), "never mind")
    assert asked(office.session(clock=lambda: time.time() + later)) != identity
    assert (ran, states(office, later)) == ([], [end, "waiting"])


def test_answer_that_does_not_count_is_not_taken_over_and_does_not_block(office, ran):
    """Somebody writes an answer into the workspace's ledger that ada has not signed."""
    office.damaged = True
    identity = asked(office.session())
    other = KeyRing.of(os.environ).create("eve", force=True)
    with office.kernel() as kernel, open_queue(office.state) as waiting:
        pending, ledger = waiting.find(identity), kernel.ledger
        said = {"answer": "approve", "approver": "ada", "ledger": ledger.session_id, "at": ledger.now(), "nonce": "0"}
        payload = statement(waiting.request(pending), other, {**said, "note": ""})
        entry = Entry(
            label("approval.answered", "user", "ada"), ledger.span(), pending.requested.span, encode_payload(payload)
        )
        ledger.append([entry], durable=True)
    anew = asked(office.session())
    assert (anew != identity, ran) == (True, [])
    answered(office, anew)
    assert isinstance(office.session().call("pay", BOB), Ok)
    assert len(ran) == 1


def test_approval_whose_use_was_cut_away_is_not_taken_over(office, ran):
    office.damaged = True
    with office.kernel() as kernel, kernel.session() as session:
        identity = asked(session)
        answered(office, identity)
        assert isinstance(session.call("pay", BOB), Ok)
    place = office.state / "workspace/.events.jsonl"
    lines = place.read_bytes().splitlines(keepends=True)
    place.write_bytes(b"".join(lines[: next(n for n, line in enumerate(lines) if b"approval.used" in line)]))
    with office.kernel() as kernel, kernel.session() as session:
        assert asked(session) != identity
    assert len(ran) == 1


def test_secret_in_the_arguments_needs_no_record_of_it(office, ran, monkeypatch):
    """Who asks again brings the argument that no record keeps."""
    monkeypatch.setenv("PAY_TOKEN", SECRET)
    office.settings(secrets={"token": {"env": "PAY_TOKEN"}})
    session = office.session()
    answered(office, asked(session, {"to": SECRET}))
    assert isinstance(session.call("pay", {"to": SECRET}), Ok)
    assert ran == [{"to": SECRET}]
    assert not any(SECRET.encode() in place.read_bytes() for place in office.state.rglob("*") if place.is_file())


def test_rewritten_call_runs_as_it_was_shown(office, ran):
    office.hook("loud", "PreToolUse", lambda call: transform({"to": call.args["to"] + "!"}), rewrites=True)
    session = office.session()
    answered(office, asked(session))
    assert session.call("pay", BOB) == Ok({"paid": "bob!"})
    assert asked(session, {"to": "bob!"}) != requests(session)[0]


def test_nested_call_takes_over_what_was_approved_for_it(office, ran):
    """The outer call ran and its inner one was parked; asked again, the inner one goes on."""
    office.tool("errand", lambda args, ctx: ctx.call("pay", BOB), uses=["pay"])
    session = office.session()
    result = session.call("errand", {})
    assert isinstance(result, Err)
    (identity,) = requests(session)
    answered(office, identity)
    assert session.call("errand", {}) == Ok({"paid": "bob"})
    assert ran == [BOB]
    assert asked(session) != identity, "what a nested call was allowed is nothing that its person asked for"


def test_role_takes_over_what_was_approved_for_it_in_an_earlier_run(lab, ran):
    lab.tool("pay", lambda args, ctx: ran.append(ctx.principal.id) or 1, tags=["approval-gate"])
    approving(lab)
    lab.role("worker")
    lab.skill("go", allows="pay")
    lab.model(lambda request, ctx: [{"id": "t", "name": "pay", "args": {}}])

    def flow(args, run):
        agent = run.agent("worker")
        with suppress(Failed):
            agent.use(agent.complete({"messages": [{"role": "user", "content": "go"}]})["tool_calls"][0])

    lab.flow("work", flow)
    with lab.session() as session:
        session.run("go")
    answered(lab, requests(session)[0])
    with lab.session() as later:
        later.run("go")
    assert ran == ["agent:worker"]
    assert requests(later) == requests(session)


# --- a request that waits ---------------------------------------------------------------------------------------------


def test_request_that_waits_is_told_again_and_not_filed_twice(office):
    first, second = office.session(), office.session()
    identity = asked(first)
    assert [asked(first), asked(second)] == [identity, identity]
    assert (states(office), requests(first)) == (["waiting"], [identity, identity])


def test_who_asks_again_waits_for_the_request_of_somebody_else(office, ran):
    identity = asked(office.session())
    session = office.session(wait=SECONDS)
    thread = answering(office, session, identity)
    assert session.call("pay", BOB) == Ok({"paid": "bob"})
    thread.join()
    assert (ran, states(office)) == ([BOB], ["used"])


def test_who_asked_first_withdraws_only_for_themselves(office, ran):
    """The others, who waited for the same answer, ask anew, and wait on."""
    first, second = office.session(wait=SECONDS), office.session(wait=SECONDS)
    results = []
    threads = [
        threading.Thread(target=lambda each=each: results.append(each.call("pay", BOB))) for each in (first, second)
    ]
    threads[0].start()
    waits_for(lambda: states(office) == ["waiting"])
    threads[1].start()
    waits_for(lambda: len(requests(second)) == 1)
    first.door.approval_wait.closed = True
    waits_for(lambda: states(office) == ["withdrawn", "waiting"])
    answered(office, requests(second)[-1])
    for thread in threads:
        thread.join()
    assert [result.error.code for result in results if isinstance(result, Err)] == ["SESSION_ENDED"]
    assert ran == [BOB]


def test_who_waits_with_somebody_else_does_not_take_their_request_back(office):
    identity = asked(office.session())
    session = office.session(wait=SECONDS)
    thread = threading.Thread(target=session.call, args=("pay", BOB))
    thread.start()
    waits_for(lambda: requests(session) == [identity])
    session.end(ok=False, reason="gone")
    thread.join()
    assert states(office) == ["waiting"]


def waits_for(condition):
    """Wait until *condition* holds; ledgers are read while they are written, so that it may fail meanwhile."""

    def holds():
        with suppress(DeedbookError):
            return condition()

    until(holds)


def answering(lab, session, identity):
    """Approve the request, from another thread, once *session* has asked for it as well."""

    def work():
        waits_for(lambda: identity in requests(session))
        answered(lab, identity)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


# --- races ------------------------------------------------------------------------------------------------------------


def test_of_all_who_take_one_approval_over_at_once_one_wins(office, ran):
    answered(office, asked(office.session()))
    sessions = [office.session() for _ in range(6)]
    results = together(6, lambda: sessions.pop().call("pay", BOB))
    assert len(ran) == 1
    assert sum(isinstance(result, Ok) for result in results) == 1
    codes = {result.error.code for result in results if isinstance(result, Err)}
    assert codes <= {"APPROVAL_USED", "NEEDS_HUMAN"}
    assert states(office).count("used") == 1


def test_of_all_who_ask_for_the_same_at_once_one_files_it(office):
    sessions = [office.session() for _ in range(6)]
    left = list(sessions)
    results = together(6, lambda: left.pop().call("pay", BOB))
    assert {result.error.code for result in results} == {"NEEDS_HUMAN"}
    assert states(office) == ["waiting"]
    assert len({requests(session)[-1] for session in sessions}) == 1


def test_who_was_not_the_first_to_file_says_so_and_goes_on_with_the_other_request(office):
    """Between looking and filing somebody else files the same."""
    first, second = office.session(), office.session()

    class Slow(PendingCalls):
        def file(self, request, waiting, now):
            asked(first)
            return super().file(request, waiting, now)

    kernel = office.kernel()
    second.door.approval_wait._pending_calls = Slow(kernel.ledger, kernel.active_charter.charter)
    assert asked(second) == asked(first)
    assert office.types(second)[1:] == [
        "approval.requested", "approval.withdrawn", "approval.requested", "tool.denied",
    ]  # fmt: skip
    assert states(office) == ["waiting"]


# --- how much is read -------------------------------------------------------------------------------------------------


def test_only_what_is_recent_is_read_of_the_queue(office):
    session = office.session()
    asked_for = []
    for name in ("ann", "ben", "cid"):
        before = timestamp(time.time())
        until(lambda then=before: timestamp(time.time()) > then)  # each in a millisecond of its own
        asked_for.append(asked(session, {"to": name}))
    with open_queue(office.state) as waiting:
        times = [each.requested.ts for each in waiting]
    for number, moment in enumerate(times):
        with ApprovalQueue.since(Folder.at(office.state / "workspace"), moment) as waiting:
            assert [each.id for each in waiting] == asked_for[number:]
    with ApprovalQueue.since(Folder.at(office.state / "workspace"), "9999-01-01T00:00:00.000Z") as waiting:
        assert list(waiting) == []
        late = asked(session, {"to": "dan"})
        waiting.refresh()
        assert [each.id for each in waiting] == [late]


def test_line_that_is_being_written_is_read_when_it_is_whole(office):
    office.damaged = True
    session = office.session()
    identity = asked(session)
    place = office.state / "workspace/.events.jsonl"
    whole = place.read_bytes()
    place.write_bytes(whole[:-40])
    with ApprovalQueue.since(Folder.at(place.parent), "2000-01-01T00:00:00.000Z") as waiting:
        assert waiting.get(identity) is None
        place.write_bytes(whole)
        waiting.refresh()
        assert waiting.get(identity)


def test_each_call_may_have_a_patience_of_its_own(office, ran):
    """One that waits in a session that does not, and the reverse."""
    session, patient = office.session(), office.session(wait=SECONDS)
    assert patient.call("pay", BOB, wait=0).error.code == "NEEDS_HUMAN"
    (identity,) = requests(patient)
    thread = answering(office, session, identity)
    assert asyncio.run(session.acall("pay", BOB, wait=SECONDS)) == Ok({"paid": "bob"})
    thread.join()
    assert ran == [BOB]


@pytest.mark.parametrize("way", ["before", "abefore"])
def test_each_call_of_another_program_may_have_a_patience_of_its_own(office, way):
    """As for calls that the kernel performs."""

    def before(session, **more):
        found = getattr(session, way)("pay", BOB, **more)
        return asyncio.run(found) if way == "abefore" else found

    session, patient = office.session(), office.session(wait=SECONDS)
    assert before(patient, wait=0).error.code == "NEEDS_HUMAN"
    (identity,) = requests(patient)
    thread = answering(office, session, identity)
    ticket = before(session, wait=SECONDS)
    thread.join()
    assert session.after(ticket.value, Outcome("result", {"paid": "bob"})) == Ok({"paid": "bob"})
