"""A task whose process died goes on where it stood, and does nothing twice."""

import itertools
import json
import os

import pytest
from dying import die
from shop import FIRST, SECOND, TASK, Shop, build, check, git, outline

from deedbook import Ok

FLOW = "swe/small"


def commit_once(repository, name):
    """Commit a new file in the repository, as another task would, unless that was done before."""
    if not (repository / name).exists():
        (repository / name).write_text("new\n")
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "-m", name)


@pytest.fixture
def shop(lab):
    """Return a shop whose first check fails; the repository moves on before the second build, and during it."""
    made = Shop(lab, with_git=True)
    made.change("contracts/check.yaml", "passed: PASSED.md", "passed: MERGED.md")
    failed = lab.path / "failed"

    def respond(request, ctx):
        """Answer by what the prompt says, so that every process gives the same answers."""
        text = request["messages"][-1]["content"]
        if request["role"] == "outliner":
            return outline()
        if request["role"] == "builder":
            if failed.exists() and FIRST not in text:
                commit_once(made.repository, "during")
            return build(FIRST if FIRST in text else SECOND)
        return check()

    def run_tests(args, ctx):
        """Fail once, in whichever process that is."""
        count = {"passed": 1, "failed": 0, "exit_code": 0}
        if not failed.exists():
            failed.write_text(str(ctx.idempotency_key))
            commit_once(made.repository, "before")
        if failed.read_text() == ctx.idempotency_key:
            count |= {"failed": 1, "exit_code": 1}
        return {"schema_version": "v1", "unit_id": FIRST, **count}

    lab.model(respond, tier="mid")
    lab.tool("swe/tests", run_tests, effects="read", files="none")
    return made


def run_and_die(lab, at):
    """Run the task in a process that dies after its event number *at*; return the session's id."""
    child = os.fork()
    if not child:
        try:
            with lab.session("run") as session:
                count = itertools.count(1)
                session.ledger.subscribe(lambda _: die() if next(count) == at else None)
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
    session = run_and_die(lab, at)
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
    subjects = git(shop.repository, "log", "--format=%s").split("\n")
    assert subjects[0] == "merge: Raise the limit"
    assert sorted(subjects[1:]) == [
        "before", "during", "feat: unit-001", "feat: unit-002", "first", "merge: the last commit of repos/shop",
    ]  # fmt: skip
