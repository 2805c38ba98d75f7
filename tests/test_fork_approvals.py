"""Forks and approvals: what was approved is served, nothing of the parent is used, and no request outlives its fork."""

import threading
import time
from datetime import datetime

import pytest
from commandline import until
from persons import approving, perform_once

from deedbook import ALLOW, Err, Failed, Ok, ask
from deedbook.call.queue import open_queue
from deedbook.continuation.parent import read_parent
from deedbook.contract import Branch
from deedbook.format.errors import DeedbookError
from deedbook.format.events import timestamp
from deedbook.format.reader import read
from deedbook.policy.requests import shown_digest
from deedbook.workspace.workspace import read_workspace
from deedbook_approvals.answering import answer
from deedbook_audit.verification.forks import compare_fork
from deedbook_inspect.forking.fork import plan_fork, redo_work
from deedbook_inspect.upkeep import close_session

SECONDS = 60


@pytest.fixture
def paid():
    """Hold what was paid, in order."""
    return []


@pytest.fixture
def office(lab, paid):
    """Give a lab with a flow of two payments, of which a person decides the larger, and of one that follows it."""

    def work(args, run):
        sums = [1, 2, 3]
        told = [run.call("pay", {"sum": each, "id": run.new_id()}) for each in sums]
        run.answer(f"paid {len(told)}")

    lab.tool("pay", lambda args, ctx: paid.append(args["sum"]) or {"paid": args["sum"]}, effects="irreversible")
    lab.skill("clerk", allows="pay", triggers="hello")
    lab.policy("people", lambda call: ask("a large sum") if call.args.get("sum") == 2 else ALLOW)
    lab.flow("work", work)
    approving(lab)
    return lab


def run(lab):
    with lab.session("run") as session:
        result = session.run("hello")
    assert isinstance(result, Err)
    return session.id


def answered(lab, identity, *, approve=True):
    return answer(lab.path, identity, approve=approve, catalogue=lab.catalogue())


def complete(lab):
    """Run the flow, approve its payment, and go on to its end; return the session."""
    session = run(lab)
    answered(lab, lab.payload("approval.requested", session)["approval"])
    with lab.kernel() as kernel, kernel.resume(session) as resumed:
        assert isinstance(resumed.go_on(), Ok)
    return session


def fork(lab, parent, at=None, *, wait=0.0, **how):
    """Fork *parent* and do its work again; return the fork's id, and how the work ended."""
    kernel = lab.kernel()
    at = len(lab.events(parent)) - 1 if at is None else at
    options = {"goes_on": False, "leaves": False, "prompts": (), **how}
    planned = plan_fork(kernel, read_parent(lab.ledger(parent)), at, **options)
    with kernel.session("run", origin=planned.origin, wait=wait) as session:
        return session.id, redo_work(session, planned)


def seq(lab, session, kind, number=0):
    return [event.seq for event in lab.events(session) if event.type == kind][number]


def states(lab):
    """Return the state of each request in the queue, by its session."""
    with open_queue(lab.state) as queue:
        return {each.requested.payload["session"]: each.state(timestamp(time.time())) for each in queue}


def refused(code, function, *args, **options):
    with pytest.raises(DeedbookError) as problem:
        function(*args, **options)
    assert problem.value.error.code == code
    return str(problem.value)


# --- the past ---------------------------------------------------------------------------------------------------------


def test_approved_call_of_the_past_gets_its_outcome_and_asks_nobody(office, paid):
    parent = complete(office)
    assert paid == [1, 2, 3]
    session, result = fork(office, parent)
    assert result.value.text == "paid 3"
    assert paid == [1, 2, 3]
    types = office.types(session)
    assert "approval.requested" not in types
    assert types.count("call.served") == 3
    served = office.payload("approval.served", session)
    granted = office.one("approval.granted", parent)
    hashes = read_parent(office.ledger(parent)).hashes
    assert served == {"session": parent, "seq": granted.seq, "hash": hashes[granted.seq]}
    assert compare_fork(office.ledger(session), office.ledger) == []
    _, result = fork(office, session)
    assert (result.value.text, paid) == ("paid 3", [1, 2, 3]), "a fork of a fork"


def test_call_that_a_person_refused_is_refused_again(office, paid):
    office.flow("work", _careful)
    session = run(office)
    answered(office, office.payload("approval.requested", session)["approval"], approve=False)
    with office.kernel() as kernel, kernel.resume(session) as resumed:
        assert resumed.go_on().value.text == "APPROVAL_REFUSED"
    again, result = fork(office, session)
    assert (result.value.text, paid) == ("APPROVAL_REFUSED", [])
    assert "approval.requested" not in office.types(again)


def _careful(args, run):
    try:
        run.call("pay", {"sum": 2})
        run.answer("paid")
    except Failed as problem:
        run.answer(problem.code)


def test_call_that_needs_a_person_only_today_is_a_difference(office, paid):
    with office.session() as session:
        session.call("pay", {"sum": 4})
        session.call("pay", {"sum": 5})
    office.policy("people", lambda call: ask("any sum") if call.args.get("sum") == 4 else ALLOW)
    again, result = fork(office, session.id)
    assert result.error.code == "FORK_DIVERGED"
    assert "a person must decide about pay today" in result.error.message
    assert "approval.requested" not in office.types(again)
    assert "call.diverged" in office.types(again)
    assert paid == [4, 5]


@pytest.mark.parametrize("goes_on", [False, True])
def test_fork_gets_the_recorded_times_random_numbers_and_ids(lab, goes_on):
    seen = []

    def work(args, run):
        made = [run.now(), run.random(), run.new_id()]
        run.call("look", {"id": made[2]})
        made += run.parallel([Branch(name, lambda b: [b.new_id(), b.random()]) for name in ("left", "right")])
        run.call("look", {"id": made[3][0]})
        seen.append(made)
        run.answer(run.new_id())

    lab.tool("look", lambda args, ctx: args)
    lab.skill("clerk", allows="look", triggers="hello")
    lab.flow("work", work)
    with lab.session("run") as session:
        first = session.run("hello").value.text
    whole, result = fork(lab, session.id, goes_on=goes_on)
    assert result.value.text == first
    assert seen[1] == seen[0]
    fork(lab, session.id, seq(lab, session.id, "tool.result"), goes_on=True)
    assert seen[2][:3] == seen[0][:3]
    assert seen[2][3:] != seen[0][3:], "after the past, they are new"
    fork(lab, whole)
    assert seen[-1] == seen[0]


def test_value_of_another_kind_is_a_difference(lab):
    def work(args, run):
        run.answer(str(run.now() if len(kinds) == 1 else run.random()))

    kinds = ["now"]
    lab.skill("clerk", triggers="hello")
    lab.flow("work", work)
    with lab.session("run") as session:
        session.run("hello")
    kinds.append("random")
    again, result = fork(lab, session.id)
    assert result.error.code == "FORK_DIVERGED"
    assert "is a value of the kind 'now', not 'random'" in result.error.message
    assert "call.diverged" in lab.types(again)


# --- requests of a fork -----------------------------------------------------------------------------------------------


def test_fork_that_runs_no_handler_makes_no_request(office, paid):
    parent = run(office)
    session, result = fork(office, parent)
    assert result.error.code == "FORK_ENDED"
    assert "approval.requested" not in office.types(session)
    assert states(office) == {parent: "waiting"}
    assert paid == [1]


def test_request_of_a_fork_names_its_parent_and_ends_with_the_fork(office, paid):
    office.settings(approvals={"expires_s": 900, "run_expires_s": 90000})
    parent = run(office)
    session, result = fork(office, parent, goes_on=True)
    assert result.error.code == "NEEDS_HUMAN"
    asked = office.payload("approval.requested", session)
    assert (asked["fork_of"], asked["schema_version"]) == (parent, "v4")
    plain = {name: value for name, value in asked.items() if name != "fork_of"}
    assert shown_digest(asked) == asked["shown"] != shown_digest(plain), "the answer signs whose fork it is"
    begun, expires = (datetime.fromisoformat(each) for each in (office.events(session)[0].ts, asked["expires"]))
    assert (expires - begun).total_seconds() == 900
    assert states(office) == {parent: "waiting", session: "withdrawn"}
    ends = [event.payload for event in office.events(session) if event.type == "approval.withdrawn"]
    assert ends == [{"approval": asked["approval"], "reason": "the fork that asked has ended"}]
    refused("APPROVAL_WITHDRAWN", answered, office, asked["approval"])


def test_call_outside_a_run_of_a_fork_is_withdrawn_too_and_one_of_a_session_is_not(office, paid):
    with office.session() as session:
        session.call("pay", {"sum": 2})
    again, _ = fork(office, session.id, 0, goes_on=True)
    assert states(office) == {session.id: "waiting", again: "withdrawn"}


def test_fork_never_uses_an_approval_of_its_parent(office, paid):
    parent = run(office)
    answered(office, office.payload("approval.requested", parent)["approval"])
    session, result = fork(office, parent, goes_on=True)
    assert (result.error.code, paid) == ("NEEDS_HUMAN", [1])
    assert states(office) == {parent: "approved", session: "withdrawn"}
    with office.kernel() as kernel, kernel.resume(parent) as resumed:
        assert isinstance(resumed.go_on(), Ok)
    assert paid == [1, 2, 3]


def test_fork_that_waits_uses_its_own_approval_once_and_nobody_else_may(office, paid):
    parent = run(office)

    def approve():
        until(lambda: len(states(office)) == 2)
        with open_queue(office.state) as queue:
            identity = list(queue)[-1].id
        answered(office, identity)

    thread = threading.Thread(target=approve)
    thread.start()
    session, result = fork(office, parent, goes_on=True, wait=SECONDS)
    thread.join()
    assert (result.value.text, paid) == ("paid 3", [1, 2, 3])
    assert states(office) == {parent: "waiting", session: "used"}


def _die(lab, parent, *, approve):
    """Let a fork die while it waits for a person; return its id and its request."""
    kernel = lab.kernel()
    planned = plan_fork(
        kernel, read_parent(lab.ledger(parent)), len(lab.events(parent)) - 1, goes_on=True, leaves=False, prompts=()
    )
    session = kernel.session("run", origin=planned.origin)
    redo_work(session, planned)
    session.ledger.close()  # as the death of the process does
    identity = lab.payload("approval.requested", session.id)["approval"]
    if approve:
        answered(lab, identity)
    return session.id, identity


@pytest.mark.parametrize("approve", [False, True])
def test_request_of_a_fork_that_died_is_not_performed_and_closing_withdraws_it(office, paid, approve):
    parent = run(office)
    session, identity = _die(office, parent, approve=approve)
    if approve:
        assert session in refused("APPROVAL_OF_FORK", perform_once, office.kernel(), identity)
    close_session(read_workspace(office.path), session)
    assert states(office) == {parent: "waiting", session: "withdrawn"}
    assert office.types(session)[-2:] == ["approval.withdrawn", "session.end"]
    refused("APPROVAL_WITHDRAWN", perform_once, office.kernel(), identity)
    assert paid == [1]


def test_recovery_withdraws_the_request_of_a_fork_that_died(office, paid):
    parent = run(office)
    session, _ = _die(office, parent, approve=True)
    with office.kernel() as kernel:
        assert session in kernel.recover().closed
    assert states(office) == {parent: "waiting", session: "withdrawn"}


def test_workspace_ledger_withdraws_before_the_session_says_so(office):
    parent = run(office)
    session, _ = fork(office, parent, goes_on=True)
    own = [event for event in read(office.state / "workspace") if event.type == "approval.withdrawn"]
    said = office.one("approval.withdrawn", session)
    assert [event.payload for event in own] == [said.payload]
    assert own[0].ts <= said.ts
