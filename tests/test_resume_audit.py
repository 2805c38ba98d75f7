"""What verification says of resumed sessions: each call is judged under the charter that was in force."""

import json
import os
import shutil

import pytest
from dying import die
from persons import approving
from test_resume import REPORT, answered, resume, sessions, suspended

from deedbook import ALLOW, Err, EventType, Ok
from deedbook.continuation.parent import read_parent
from deedbook_audit.verification.charters import check_charters
from deedbook_inspect.forking.fork import plan_fork, redo_work
from deedbook_inspect.reading import types_in

LARGE = {"match": {"abilities": ["pay"], "args": {"/sum": {"in": [2]}}}, "then": "ask", "reason": "a large sum"}
REST = {"match": {}, "then": "allow"}
PLAIN = {"goes_on": False, "leaves": False, "prompts": ()}


def policy(lab, *rules):
    """Declare the policy ``pays`` with *rules*."""
    body = {"schema_version": "v1", "id": "pays", "kind": "rules", "match": {"abilities": ["pay"]}, "rules": rules}
    lab.write("policies/pays.yaml", json.dumps(body))


@pytest.fixture
def did():
    return []


@pytest.fixture
def office(lab, did):
    """Give a lab with a flow of two payments, the second of which needs a person by a rule."""
    lab.tool("pay", lambda args, ctx: did.append(args["sum"]) or {"paid": args["sum"]}, effects="write")
    lab.skill("clerk", allows="pay", triggers="hello")
    policy(lab, LARGE, REST)
    approving(lab)

    def work(args, run):
        run.context.clarify({"goal": args["prompt"]})
        run.context.plan({"steps": []})
        run.context.begin_execution()
        run.call("pay", {"sum": 1})
        run.call("pay", {"sum": 2})
        run.context.verify(REPORT)
        run.context.complete({"verdict": "pass"})

    lab.flow("work", work)
    return lab


def digest(lab):
    with lab.kernel() as kernel:
        return kernel.active_charter.charter.digest


def judged(lab, session):
    """Return the decisions of the session: all calls, and those that were derived again with the same result."""
    report = lab.verify(session)
    assert report.sound, report
    return report.decisions.calls, report.decisions.same


def test_decisions_before_and_after_an_approval_follow_from_the_record(office):
    session = suspended(office)
    assert judged(office, session) == (2, 2)
    answered(office, session)
    assert isinstance(resume(office, session), Ok)
    assert judged(office, session) == (3, 3)


def test_refusal_of_a_suspended_call_is_an_ask_under_the_charter_of_its_request(office):
    session = suspended(office)
    answered(office, session, approve=False)
    policy(office, REST)
    resume(office, session, accept_charter=digest(office))
    assert office.one("tool.denied", session).payload["code"] == "APPROVAL_REFUSED"
    assert judged(office, session) == (3, 3)


def test_calls_after_a_resume_are_judged_under_the_charter_that_it_names(office, did):
    session = suspended(office)
    policy(office, {**LARGE, "then": "deny"}, REST)
    got = resume(office, session, accept_charter=digest(office))
    assert isinstance(got, Err)
    assert got.error.code == "GATE_DENIED"
    assert did == [1]
    assert judged(office, session) == (3, 3)


def test_charter_that_a_resume_names_needs_a_record(office, tmp_path):
    """The workspace ledger records every charter that came into force, also one that only a resume names."""
    session = suspended(office)
    policy(office, {**LARGE, "then": "deny"}, REST)
    later = digest(office)
    resume(office, session, accept_charter=later)
    assert not check_charters(office.state, [session]).gaps
    copy = shutil.copytree(office.state, tmp_path / "copy")
    own = copy / "workspace/.events.jsonl"
    own.write_text(own.read_text().replace(later, "0" * 64))
    assert later in str(check_charters(copy, [session]).gaps)


def forked(lab, session, at):
    """Fork the session at an event, and do the work again; return the fork's id and the end of its run."""
    with lab.kernel() as kernel:
        planned = plan_fork(kernel, read_parent(lab.ledger(session)), at, **PLAIN)
        with kernel.session("run", origin=planned.origin) as fork:
            redo_work(fork, planned)
        return fork.id, planned.recall


def test_fork_of_a_resumed_session_repeats_no_effect_and_is_not_suspended(office, did):
    session = suspended(office)
    answered(office, session)
    resume(office, session)
    fork, recall = forked(office, session, len(office.events(session)) - 1)
    assert did == [1, 2]
    assert recall.served == 2, "the approved payment of 2 is served, and asks nobody"
    assert office.types(fork).count("approval.served") == 1
    assert office.types(fork)[-1] == "session.end"
    assert office.verify(fork).sound


def test_fork_gets_the_outcome_of_a_lost_call_that_was_made_again(lab, tmp_path):
    place, asked = tmp_path / "asked", []

    def look(args, ctx):
        asked.append(1)
        if not place.exists():
            place.touch()
            die()
        return {"seen": True}

    lab.tool("look", look, effects="read")
    lab.skill("clerk", allows="look", triggers="hello")
    lab.flow("work", lambda args, run: json.dumps(run.call("look", {})))
    if not (child := os.fork()):
        try:
            with lab.session("run") as session:
                session.run("hello")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    (session,) = sessions(lab)
    assert resume(lab, session).value.text == '{"seen": true}'
    fork, recall = forked(lab, session, len(lab.events(session)) - 1)
    assert asked == [1]
    assert (recall.served, recall.refused) == (1, 0)
    assert lab.one("agent.reply", fork).payload["reply"] == '{"seen": true}'


def test_gate_that_reads_the_state_of_nested_runs_is_derived_again(lab):
    lab.tool("pay", lambda args, ctx: {}, effects="write")
    lab.policy("watch", lambda call: ALLOW, reads=frozenset({"context.state"}))
    lab.skill("clerk", allows="pay inner", triggers="hello")
    lab.flow("inner", lambda args, run: (run.call("pay", {}) and None) or "in")
    lab.flow("work", lambda args, run: (run.call("inner", {}) and run.call("pay", {}) and None) or "out")
    with lab.session("run") as session:
        assert isinstance(session.run("hello"), Ok)
    report = lab.verify(session)
    assert report.sound, report
    assert not report.decisions.unchecked


def test_event_types_are_checked_under_the_charter_in_force_at_their_line(lab):
    """The charter of the resumption may declare other types than that of the start, and others of the same name."""
    number, text = ({"type": "object", "properties": {"sum": {"type": kind}}} for kind in ("integer", "string"))
    approving(lab)
    lab.tool("pay", lambda args, ctx: {}, effects="write")
    lab.skill("clerk", allows="pay", triggers="hello")
    policy(lab, {"match": {}, "then": "ask", "reason": "every sum"})

    def flow(last, **records):
        def work(args, run):
            run.record("x.offered_work.paid", {"sum": 1})
            run.call("pay", {})
            run.record(f"x.offered_work.{last}", {"sum": "2"})
            run.answer("done")

        types = {f"x.offered_work.{name}": EventType(schema=schema, text=name) for name, schema in records.items()}
        lab.flow("work", work, records=types)

    flow("paid", paid=number)
    session = suspended(lab)
    flow("paid", paid=text, closed=text)
    resume(lab, session, accept_charter=digest(lab))
    answered(lab, session)
    assert isinstance(resume(lab, session), Ok)
    assert lab.verify(session).sound
    assert {each for each in types_in(lab.ledger(session)).rows if each.startswith("x.offered_work.")} == {
        "x.offered_work.paid", "x.offered_work.closed",
    }  # fmt: skip
