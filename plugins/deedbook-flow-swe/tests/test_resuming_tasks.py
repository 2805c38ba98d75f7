"""A task whose process died goes on where it stood, and does nothing twice."""

import itertools
import json
import os

import pytest
from shop import FIRST, SECOND, TASK, Shop, build, check, git, outline

from deedbook import Ok

FLOW = "swe/small"


def respond(request, ctx):
    """Answer by what the prompt says, so that every process gives the same answers: the first check finds something."""
    text = request["messages"][-1]["content"]
    if request["role"] == "outliner":
        return outline()
    if request["role"] == "builder":
        return build(FIRST if FIRST in text else SECOND)
    return check()


@pytest.fixture
def shop(lab):
    made = Shop(lab, with_git=True)
    lab.model(respond, tier="mid")
    made.change("contracts/check.yaml", "passed: PASSED.md", "passed: MERGED.md")
    failed = lab.path / "failed"

    def run_tests(args, ctx):
        """Fail once, in whichever process that is."""
        count = {"passed": 1, "failed": 0, "exit_code": 0}
        if not failed.exists():
            failed.write_text(str(ctx.idempotency_key))
        if failed.read_text() == ctx.idempotency_key:
            count |= {"failed": 1, "exit_code": 1}
        return {"schema_version": "v1", "unit_id": FIRST, **count}

    lab.tool("swe/tests", run_tests, effects="read", files="none")
    return made


def die(lab, at):
    """Run the task in a process that dies after its event number *at*; return the session's id."""
    child = os.fork()
    if not child:
        try:
            with lab.session("run") as session:
                count = itertools.count(1)
                session.ledger.subscribe(lambda _: os._exit(9) if next(count) == at else None)
                session.run(json.dumps(TASK), FLOW)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    [found] = os.listdir(lab.state / "sessions")
    return found


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize("at", range(2, 240))
def test_task_whose_process_died_goes_on_where_it_stood(shop, at):
    lab = shop.lab
    session = die(lab, at)
    if "agent.reply" in lab.types(session):
        return
    with lab.kernel() as kernel, kernel.resume(session) as again:
        found = again.go_on()
        if not again.ended:
            again.end(ok=isinstance(found, Ok), reason="done")
    assert isinstance(found, Ok), found
    assert found.value.state == "COMPLETED", found.value.text
    kinds = [each.type for each in lab.events(session)]
    assert (kinds.count("swe.task_started"), kinds.count("swe.task_ended")) == (1, 1)
    completed = [
        (each.payload["phase"], each.payload["iteration"], each.payload["unit"])
        for each in lab.all("swe.phase_completed", session)
    ]
    assert completed == [
        ("outline", 1, None), ("build", 1, FIRST), ("build", 1, SECOND), ("build", 1, None),
        ("build", 2, FIRST), ("build", 2, SECOND), ("build", 2, None), ("check", 2, None),
    ]  # fmt: skip
    subjects = git(shop.repository, "log", "--topo-order", "--format=%s", "--no-merges").split("\n")
    assert subjects == ["feat: unit-002", "feat: unit-001", "first"]
    assert git(shop.repository, "log", "-1", "--format=%s") == "merge: Raise the limit"
