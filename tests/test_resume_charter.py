"""A run that goes on under another charter reads what the charter of its record said, as long as the record lasts."""

import shutil

import pytest
from persons import approving
from test_resume import REPORT, answered, resume, state_of, suspended

from deedbook import ALLOW, Ok, ask


@pytest.fixture
def reading(lab):
    """Give a lab whose flow records everything that it reads from the charter, and what it read after the record."""
    later = []

    def work(args, run):
        run.context.clarify({"goal": args["prompt"], "skill": run.skill.description})
        run.context.note("lists", read(run))
        agent = run.agent("worker")
        message = {"role": "user", "content": agent.instructions}
        agent.complete({"messages": [message], "tools": agent.tools()})
        run.context.plan({"steps": []})
        run.context.begin_execution()
        run.call("pay", {"sum": 2})
        later.append(read(run))
        run.context.verify(REPORT)
        run.context.complete({"verdict": "pass"})

    lab.tool("pay", lambda args, ctx: {"paid": args["sum"]}, effects="write")
    lab.tool("look", lambda args, ctx: {}, effects="read")
    lab.policy("people", lambda call: ask("a large sum") if call.ability == "pay" else ALLOW)
    lab.model(lambda request, ctx: "fine")
    lab.role("worker", "Do it.")
    lab.skill("clerk", allows="pay", triggers="hello")
    approving(lab)
    lab.flow("work", work)
    return lab, later


def read(run):
    skills = [[each.skill.name, sorted(each.skill.allowed)] for each in run.skills()]
    return {"abilities": [each.id for each in run.abilities()], "skills": skills}


def change(lab, number):
    """Change everything that the flow reads; return the new charter's digest."""
    lab.skill("clerk", allows="pay look", triggers=f"hello, other{number}")
    lab.skill(f"more{number}", allows="look")
    lab.role("worker", f"Do it otherwise, {number}.")
    with lab.kernel() as kernel:
        return kernel.active_charter.charter.digest


def test_run_under_a_new_charter_reads_the_old_one_until_the_record_ends(reading):
    lab, later = reading
    session = suspended(lab)
    assert resume(lab, session, accept_charter=change(lab, 1)).error.code == "NEEDS_HUMAN"
    digest = change(lab, 2)
    assert resume(lab, session, accept_charter=digest).error.code == "NEEDS_HUMAN"
    answered(lab, session)
    got = resume(lab, session)
    assert isinstance(got, Ok), got.error
    assert later == [
        {"abilities": ["look", "pay"], "skills": [["clerk", ["look", "pay"]], ["more1", ["look"]], ["more2", ["look"]]]}
    ]
    assert lab.one("context.noted", session).payload["data"]["skills"] == [["clerk", ["pay"]]]
    assert lab.types(session).count("llm.request") == 1
    report = lab.verify(session)
    assert report.sound, report


def test_run_whose_old_charter_is_gone_does_not_go_on(reading):
    lab, later = reading
    session = suspended(lab)
    old = lab.one("session.start", session).payload["charter"]
    digest = change(lab, 1)
    shutil.rmtree(lab.state / "charters" / old)
    got = resume(lab, session, accept_charter=digest)
    assert (got.error.code, old in got.error.message) == ("RESUME_INCOMPLETE", True)
    assert not later
    assert state_of(lab, session) == "suspended"
