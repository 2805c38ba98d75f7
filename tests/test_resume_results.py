"""A person's own result for a call of a suspended run, and writes whose outcome was lost."""

import json
import os
from pathlib import Path

import pytest
from dying import die
from persons import approving
from test_resume import REPORT, office, refused, resume, sessions, state_of, suspended  # noqa: F401 - a fixture

from deedbook import Err, HandlerSpec, Ok
from deedbook.approvals.results import sign_as
from deedbook.call.queue import open_queue
from deedbook.continuation.parent import read_parent
from deedbook.format.errors import DeedbookError
from deedbook_inspect.forking.fork import plan_fork


@pytest.fixture
def did():
    return []


def take_over(lab, session, value, **options):
    """Resume the session with a person's result for the call that waits."""
    with lab.kernel() as kernel:
        given = sign_as(kernel.bindings.charter.document["principals"], value, **options)
        with kernel.resume(session, result=given) as again:
            got = again.go_on()
            if not again.ended:
                again.end(ok=isinstance(got, Ok), reason="done")
            return got


def test_result_of_a_person_is_what_the_run_gets_and_the_call_is_not_made(office, did):  # noqa: F811
    session = suspended(office)
    got = take_over(office, session, {"paid": "by hand"})
    assert isinstance(got, Ok), got
    assert 2 not in did
    settled = office.one("call.settled", session)
    assert (settled.payload["ability"], settled.payload["result"]) == ("pay", {"paid": "by hand"})
    assert (settled.payload["approver"], settled.principal) == ("ada", "ada")
    assert settled.parent == office.one("approval.requested", session).span
    with open_queue(office.state) as waiting:
        assert waiting.find(office.one("approval.requested", session).payload["approval"]).withdrawn
    report = office.verify(session)
    assert report.sound, report
    assert report.decisions.calls == report.decisions.same + sum(report.decisions.unknown.values())


def test_result_that_does_not_fit_changes_nothing(lab):
    lab.tool("pay", lambda args, ctx: {"paid": 1}, effects="write", gives={"type": "object", "required": ["paid"]})
    lab.settings(abilities={"pay": {"tags": ["approval-gate"]}})
    lab.skill("clerk", allows="pay", triggers="hello")
    approving(lab)
    lab.flow("work", lambda args, run: str(run.call("pay", {})))
    session = suspended(lab)
    before = lab.types(session)
    refused("SCHEMA_VIOLATION", take_over, lab, session, {"sum": 1})
    assert lab.types(session) == before
    assert state_of(lab, session) == "suspended"
    assert take_over(lab, session, {"paid": 7}).value.text == "{'paid': 7}"


def test_nobody_but_an_approver_gives_a_result(office):  # noqa: F811
    session = suspended(office)
    before = office.types(session)
    refused("APPROVAL_NO_APPROVER", take_over, office, session, {}, approver="eve")
    refused("RESUME_REFUSED", take_over, office, session, {}, call="f" * 32)
    assert office.types(session) == before


def test_forged_result_is_found(office, tmp_path):  # noqa: F811
    session = suspended(office)
    take_over(office, session, {"paid": "by hand"})
    event = office.one("call.settled", session)
    from deedbook.policy.requests import result_faults

    assert not list(result_faults(event.payload, event.payload["key"], event.parent))
    told = list(result_faults({**event.payload, "result": {"paid": 0}}, event.payload["key"], event.parent))
    assert told == ["its result is another than was signed"]
    assert list(result_faults(event.payload, event.payload["key"], "0" * 16)) == [
        "its settles is another than was signed"
    ]
    assert list(result_faults(event.payload, None, event.parent))


def test_fork_past_the_result_of_a_person_is_refused(office):  # noqa: F811
    session = suspended(office)
    take_over(office, session, {"paid": "by hand"})
    parent = read_parent(office.ledger(session))
    settled = office.one("call.settled", session).seq
    with office.kernel() as kernel:
        plain = {"goes_on": False, "leaves": False, "prompts": ()}
        refused("FORK_REFUSED", plan_fork, kernel, parent, settled, **plain)
        assert plan_fork(kernel, parent, settled - 1, **plain)


# --- lost writes ------------------------------------------------------------------------------------------------------


def lose(lab, place):
    """Let a process die in the middle of a payment, after the effect; return the session."""
    child = os.fork()
    if not child:
        try:
            with lab.session("run") as session:
                session.run("hello")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert place.read_text() == "paid\n"
    (session,) = sessions(lab)
    return session


def with_payment(lab, place, **more):
    def pay(args, ctx):
        with place.open("a") as file:
            file.write("paid\n")
        if place.read_text() == "paid\n":
            die()
        return {"paid": "twice"}

    lab.tool("pay", pay, effects="write", **more)
    lab.skill("clerk", allows="pay", triggers="hello")
    approving(lab)
    lab.flow("work", lambda args, run: json.dumps(run.call("pay", {"sum": 1})))


class Reconciling:
    """A payment whose handler can find out whether it has happened."""

    spec = HandlerSpec(effects="write", gives={"type": "object"}, reconciles=True)
    place, asked = Path(), []

    def __init__(self, settings, host):
        pass

    def __call__(self, args, ctx):
        with self.place.open("a") as file:
            file.write("paid\n")
        die()

    def reconcile(self, args, idempotency_key):
        self.asked.append((args, idempotency_key))
        return {"paid": "reconciled"} if self.place.exists() else None


def with_reconciling_payment(lab, place, asked):
    Reconciling.place, Reconciling.asked = place, asked
    lab.offer("tool", "reconciling", Reconciling)
    lab.settings(abilities={"pay": {"summary": "Pay.", "handler": {"tool": "reconciling"}}})
    lab.skill("clerk", allows="pay", triggers="hello")
    approving(lab)
    lab.flow("work", lambda args, run: json.dumps(run.call("pay", {"sum": 1})))


def test_lost_write_waits_for_a_person_whose_result_goes_on(lab, tmp_path):
    place = tmp_path / "effects"
    with_payment(lab, place)
    session = lose(lab, place)
    got = resume(lab, session)
    assert isinstance(got, Err)
    assert (got.error.code, "--result JSON" in got.error.message) == ("NEEDS_HUMAN", True)
    assert state_of(lab, session) == "suspended"
    got = take_over(lab, session, {"paid": "once"})
    assert got.value.text == '{"paid": "once"}'
    assert place.read_text() == "paid\n"
    assert lab.one("call.settled", session).parent == lab.one("tool.call", session).span
    assert [event.payload["outcome"] for event in lab.all("tool.error", session)] == ["unknown"]
    assert lab.verify(session).sound


def test_lost_write_is_settled_at_the_first_resume(lab, tmp_path):
    place = tmp_path / "effects"
    with_payment(lab, place)
    session = lose(lab, place)
    assert take_over(lab, session, {"paid": "once"}).value.text == '{"paid": "once"}'
    assert lab.verify(session).sound


def test_lost_read_that_made_a_write_is_not_made_again(lab, tmp_path):
    """An ability that declares no effects may call one that has some: the whole call then waits for a person."""
    place = tmp_path / "effects"
    with_payment(lab, place)

    def look(args, ctx):
        with place.open("a") as file:
            file.write("paid\n")
        ctx.call("note", args)
        die()

    lab.tool("note", lambda args, ctx: None, effects="write")
    lab.tool("pay", look, effects="read", uses=["note"])
    session = lose(lab, place)
    got = resume(lab, session)
    assert (got.error.code, "--result JSON" in got.error.message) == ("NEEDS_HUMAN", True)
    assert take_over(lab, session, {"paid": "once"}).value.text == '{"paid": "once"}'
    assert place.read_text() == "paid\n"
    assert lab.verify(session).sound


def test_lost_write_whose_handler_reconciles_has_its_effect_once(lab, tmp_path):
    place = tmp_path / "effects"
    asked = []
    with_reconciling_payment(lab, place, asked)
    session = lose(lab, place)
    with pytest.raises(DeedbookError) as problem:
        take_over(lab, session, {"paid": "by hand"})
    assert problem.value.error.code == "RESUME_REFUSED", "nobody needs to say what the handler knows"
    got = resume(lab, session)
    assert got.value.text == '{"paid": "reconciled"}'
    assert place.read_text() == "paid\n"
    span = lab.one("tool.call", session).span
    assert asked[-1] == ({"sum": 1}, f"{session}:{span}")
    assert lab.one("tool.result", session).parent == span
    assert lab.verify(session).sound
