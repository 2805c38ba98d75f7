"""Runs that meet a fault end in a legal state: two processes, a step that dies half-way, a branch that raises."""

import json
import os

import pytest
from dying import die
from persons import approving
from test_resume import REPORT, answered, office, refused, resume, sessions, state_of, suspended  # noqa: F401
from test_resume_results import take_over

from deedbook import Failed, Ok
from deedbook.contract import Branch


@pytest.fixture
def did():
    return []


def dying(lab, prompt="hello"):
    """Run the prompt in a process that kills itself; return the session's id."""
    child = os.fork()
    if not child:
        try:
            with lab.session("run") as session:
                session.run(prompt)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    (session,) = sessions(lab)
    return session


def test_second_process_that_resumes_a_session_is_refused(office):  # noqa: F811
    session = suspended(office)
    answered(office, session)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            with office.kernel() as kernel, kernel.resume(session) as again:
                os.write(ready[1], b".")
                os.read(go[0], 1)
                status = 0 if isinstance(again.go_on(), Ok) else 2
        finally:
            os._exit(status)
    os.close(ready[1])
    assert os.read(ready[0], 1), "the other process has the session"
    refused("LEDGER_LOCKED", resume, office, session)
    os.write(go[1], b".")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    refused("SESSION_ENDED", resume, office, session)


def test_step_of_a_plan_that_dies_half_way_is_unknown_and_needs_a_person(lab, tmp_path):
    place = tmp_path / "effects"

    def pay(args, ctx):
        with place.open("a") as file:
            file.write("paid\n")
        die()

    approving(lab)
    lab.tool("look", lambda args, ctx: {})
    lab.tool("pay", pay, effects="write")
    lab.model(lambda request, ctx: "")
    lab.settings(abilities={"planned": {"summary": "Plan and run.", "handler": {"flow": "plan-and-run"}}},
                 profile="lab", profiles={"lab": {"flow": "planned"}})  # fmt: skip
    steps = [
        {"id": "pay", "description": "pay", "ability": "pay"},
        {"id": "look", "description": "look", "ability": "look", "depends_on": ["pay"]},
    ]
    front = {"name": "do", "description": "Does it.", "allowed-tools": ["pay", "look"], "triggers": ["do"],
             "metadata": {"deedbook": {"steps": steps}}}  # fmt: skip
    lab.write("skills/do/SKILL.md", f"---\n{json.dumps(front)}\n---\n# do\n")
    session = dying(lab, "do it")
    assert resume(lab, session).error.code == "NEEDS_HUMAN"
    assert lab.one("tool.error", session).payload["outcome"] == "unknown"
    assert lab.types(session)[-2:] == ["context.needs_human", "session.suspended"]
    got = take_over(lab, session, {"paid": True})
    assert got.value.state == "COMPLETED"
    assert got.value.context.report["steps_completed"] == ["do/pay", "do/look"]
    assert place.read_text() == "paid\n"
    assert lab.verify(session).sound


def test_branch_that_raised_raises_the_same_in_the_resumed_run(lab, tmp_path):
    """The branches that ended are not run again, and the flow gets the same failure."""
    place = tmp_path / "effects"

    def act(args, ctx):
        with place.open("a") as file:
            file.write(f"{args['n']}\n")
        if args["n"] == 2:
            raise Failed("SHOP_CLOSED", "come back later")
        if args["n"] == 3 and place.read_text().count("3") == 1:
            die()
        return {}

    def work(args, run):
        run.context.clarify({})
        run.context.plan({"steps": []})
        run.context.begin_execution()
        with pytest.raises(Failed) as failure:
            run.parallel([Branch(f"b{n}", lambda b, n=n: b.call("act", {"n": n})) for n in (1, 2)])
        run.context.note("failure", {"code": failure.value.code, "message": str(failure.value)})
        run.call("look", {"n": 3})
        run.context.verify(REPORT)
        run.context.complete({"verdict": "pass"})

    lab.tool("act", act, effects="write")
    lab.tool("look", act, effects="read")
    lab.skill("clerk", allows="act look", triggers="hello")
    lab.flow("work", work)
    session = dying(lab)
    got = resume(lab, session)
    assert got.value.state == "COMPLETED"
    assert [each.data for each in got.value.context.log] == [{"code": "SHOP_CLOSED", "message": "come back later"}]
    assert sorted(place.read_text().split()) == ["1", "2", "3", "3"]
    assert state_of(lab, session) == "ended"
