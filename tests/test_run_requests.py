"""Requests of runs: one that its run ends without is withdrawn, and its approval allows nothing any more."""

import time

import pytest
from persons import approving, perform_once

from deedbook import ALLOW, Failed, Ok, ask
from deedbook.call.pending_calls import PendingCalls
from deedbook.call.queue import open_queue
from deedbook.contract import Branch
from deedbook.format.errors import DeedbookError, LedgerError, fault
from deedbook.format.events import timestamp
from deedbook.workspace.workspace import read_workspace
from deedbook_approvals.answering import answer
from deedbook_inspect.upkeep import close_session

STANDALONE = {"gives": {"type": "object"}, "takes": {"type": "object"}}


def pay(run, args):
    """Pay in a branch with a skill: a flow that is called without one may use nothing."""
    return run.parallel([Branch("pay", lambda branch: branch.call("pay", args), skill="clerk")])[0]


@pytest.fixture
def paid():
    """Hold what was paid, in order."""
    return []


@pytest.fixture
def office(lab, paid):
    """Give a lab with a payment that a person decides, and a flow that pays and a flow that goes on without."""

    def careful(args, run):
        try:
            return pay(run, args)
        except Failed as problem:
            return {"paid": problem.code}

    lab.tool("pay", lambda args, ctx: paid.append(args["sum"]) or {"paid": args["sum"]}, effects="irreversible")
    lab.policy("people", lambda call: ask("a large sum") if call.ability == "pay" else ALLOW)
    lab.skill("clerk", allows="pay")
    lab.flow("strict", lambda args, run: pay(run, args), **STANDALONE)
    lab.flow("careful", careful, **STANDALONE)
    approving(lab)
    return lab


def answered(lab, identity):
    return answer(lab.path, identity, approve=True, catalogue=lab.catalogue())


def states(lab):
    with open_queue(lab.state) as queue:
        return [each.state(timestamp(time.time())) for each in queue]


def refused(code, function, *args):
    with pytest.raises(DeedbookError) as problem:
        function(*args)
    assert problem.value.error.code == code
    return str(problem.value)


def last_request(lab):
    with open_queue(lab.state) as queue:
        return list(queue)[-1].id


def test_request_is_withdrawn_when_its_run_ends_without_it(office, paid):
    with office.session() as session:
        assert session.call("careful", {"sum": 2}) == Ok({"paid": "NEEDS_HUMAN"})
        assert states(office) == ["withdrawn"]
    assert "the run that asked has ended without it" in refused(
        "APPROVAL_WITHDRAWN", perform_once, office.kernel(), last_request(office)
    )
    types = office.types(session)
    assert types.index("approval.withdrawn") < types.index("flow.result")
    assert paid == []


def test_request_of_a_run_that_ended_because_it_needs_a_person_is_for_the_repeated_call(office, paid):
    with office.session() as session:
        assert session.call("strict", {"sum": 2}).error.code == "NEEDS_HUMAN"
    assert states(office) == ["waiting"]
    answered(office, last_request(office))
    with office.session() as later:
        assert later.call("strict", {"sum": 2}) == Ok({"paid": 2})
    assert (states(office), paid) == (["used"], [2])


def test_request_of_an_inner_run_is_withdrawn_when_the_outer_run_goes_on_without_it(office, paid):
    def outer(args, run):
        try:
            return run.call("strict", args)
        except Failed as problem:
            return {"paid": problem.code}

    office.flow("outer", outer, uses=["strict"], **STANDALONE)
    with office.session() as session:
        assert session.call("outer", {"sum": 2}) == Ok({"paid": "NEEDS_HUMAN"})
    assert states(office) == ["withdrawn"]


def test_request_that_another_session_filed_is_not_withdrawn(office):
    with office.session() as first:
        first.call("strict", {"sum": 2})
    with office.session() as second:
        second.call("careful", {"sum": 2})
    assert office.payload("approval.requested", second)["session"] == first.id
    assert states(office) == ["waiting"]


def test_request_that_was_used_is_not_withdrawn(office, paid):
    with office.session() as first:
        first.call("strict", {"sum": 2})
    answered(office, last_request(office))
    with office.session() as second:
        assert second.call("careful", {"sum": 2}) == Ok({"paid": 2})
    assert states(office) == ["used"]
    assert "approval.withdrawn" not in office.types(second)


def test_requests_under_an_earlier_charter_end_with_the_resumed_run(lab, paid):
    lab.tool("pay", lambda args, ctx: paid.append(args["sum"]), effects="irreversible")
    lab.policy("people", lambda call: ask("a large sum") if call.args.get("sum") == 2 else ALLOW)
    lab.skill("clerk", allows="pay", triggers="hello")
    approving(lab)

    def work(args, run):
        run.call("pay", {"sum": 2})
        run.answer("paid")

    lab.flow("work", work)
    with lab.session("run") as session:
        session.run("hello")
    lab.policy("people", lambda call: ALLOW)
    with lab.kernel() as kernel:
        charter = kernel.bindings.charter.digest
        with kernel.resume(session.id, accept_charter=charter) as resumed:
            assert isinstance(resumed.go_on(), Ok)
    assert (states(lab), paid) == (["withdrawn"], [2])


@pytest.mark.parametrize("approve", [False, True])
def test_request_of_a_run_that_died_is_not_performed_and_closing_withdraws_it(office, paid, approve):
    def dying(args, run):
        try:
            pay(run, args)
        except Failed:
            kept.extend((place, place.read_bytes()) for place in (office.ledger(begun[0]), own))
        return {}

    own, kept, begun = office.state / "workspace" / ".events.jsonl", [], []
    office.flow("dying", dying, **STANDALONE)
    with office.kernel() as kernel, kernel.session() as session:
        begun.append(session.id)
        session.call("dying", {"sum": 2})
    for place, raw in kept:
        place.write_bytes(raw)  # as the death of the process leaves it
    identity = last_request(office)
    if approve:
        answered(office, identity)
        said = refused("APPROVAL_WITHDRAWN", perform_once, office.kernel(), identity)
        assert f"deedbook sessions close {session.id}" in said
    close_session(read_workspace(office.path), session.id)
    assert states(office) == ["withdrawn"]
    assert not office.events(session.id)[-1].payload["reason"].startswith("NEEDS_HUMAN")
    refused("APPROVAL_WITHDRAWN", perform_once, office.kernel(), identity)
    assert paid == []


def test_approval_counts_for_nothing_where_its_withdrawal_was_not_written(office, paid, monkeypatch):
    def fail(*_):
        raise LedgerError(fault("LEDGER_BROKEN", "the disk is full"))

    monkeypatch.setattr(PendingCalls, "withdraw_open", fail)
    with office.session() as session:
        session.call("careful", {"sum": 2})
    monkeypatch.undo()
    identity = last_request(office)
    answered(office, identity)
    refused("APPROVAL_WITHDRAWN", perform_once, office.kernel(), identity)
    with office.session() as later:
        assert later.call("strict", {"sum": 2}).error.code == "NEEDS_HUMAN"
    assert session.id != office.payload("approval.requested", later)["session"]
    assert paid == []


def test_all_requests_of_a_run_that_is_given_up_are_withdrawn(lab):
    lab.tool("pay", lambda args, ctx: {}, effects="irreversible")
    lab.policy("people", lambda call: ask("a person decides") if call.ability == "pay" else ALLOW)
    lab.skill("clerk", allows="pay", triggers="hello")
    approving(lab)

    def work(args, run):
        run.parallel([Branch(name, lambda b, name=name: b.call("pay", {"to": name})) for name in ("ada", "bob")])

    lab.flow("work", work)
    with lab.session("run") as session:
        session.run("hello")
    assert states(lab) == ["waiting", "waiting"]
    close_session(read_workspace(lab.path), session.id)
    assert states(lab) == ["withdrawn", "withdrawn"]
