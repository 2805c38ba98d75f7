"""Tasks when things go wrong: processes that die, several at once, disks that refuse, handlers that know more."""

import json
import signal
import threading
from pathlib import Path

import pytest
from commandline import Place, ended, until

from deedbook import HandlerSpec, Ok
from deedbook.contract import Principal
from deedbook.format.errors import LedgerError, fault
from deedbook.format.reader import read
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook_serve.tasks.book import TaskBook
from deedbook_serve.tasks.runner import Tasks

EFFECT = """
    import time
    from pathlib import Path

    from deedbook import HandlerSpec

    class Plugin:
        spec = HandlerSpec(gives={"type": "object"}, effects="write", reconciles=True)

        def __init__(self, settings, host):
            pass

        def __call__(self, args, ctx):
            with Path("effects").open("a") as file:
                file.write(f"{ctx.idempotency_key}\\n")
            while Path("hang").exists():
                time.sleep(0.02)
            return {"done": True}

        def reconcile(self, args, idempotency_key):
            known = Path("known").exists() and idempotency_key in Path("effects").read_text()
            return {"done": True, "args": args} if known else None
"""


@pytest.fixture
def place(tmp_path):
    """Return a workspace whose ability `pay` hangs after its effect as long as a file is there."""
    place = Place(tmp_path / "w")
    place.system("deedbook.yaml", "schema_version: v1\ndefault: {write: allow}\n")
    place.offer("tools", "pay", EFFECT)
    place.system(
        "registry/low-level/pay.yaml",
        """
        schema_version: v1
        id: pay
        summary: Pay.
        handler: {tool: pay}
        schema_out: {type: object, properties: {done: {type: boolean}}, required: [done]}
    """,
    )
    return place


def effects(place):
    return (place.path / "effects").read_text().splitlines() if (place.path / "effects").exists() else []


def listed(place):
    (row,) = place.run("tasks", "list", "--json", status=0).fits("output_tasks_v1")["tasks"]
    return row


@pytest.fixture
def killed(place):
    """Kill a process in the midst of a task's effect; return the task's id."""
    task = place.run("tasks", "create", "pay", "--args", '{"n": 1}', status=0).out.strip()
    (place.path / "hang").touch()
    process = place.start("tasks", "run", task)
    until(lambda: effects(place))
    assert listed(place)["state"] == "running"
    assert "TASK_RUNNING" in place.run("tasks", "run", task, status=1).err
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (place.path / "hang").unlink()
    return task


def stands_in_page_as_unknown(place):
    """Say whether the page of the last task says so, as it is shown and as it is written anew."""
    (written,) = place.here("tasks", "render", status=0).out.split()
    pages = (place.here("tasks", "show", "last", status=0).out, Path(written).read_text())
    return all('state: "unknown"' in page and "it stands as unknown" in page for page in pages)


def test_task_whose_process_died_is_unknown_until_a_person_decides_and_has_its_effect_once(place, killed):
    assert listed(place)["state"] == "unknown"
    for command in (["run"], ["update"], ["delete"]):
        said = place.run("tasks", *command, killed, status=1).err
        assert "TASK_UNKNOWN" in said
        assert f"deedbook tasks decide {killed} --happened, or --did-not" in said
    assert stands_in_page_as_unknown(place)
    assert len(effects(place)) == 1
    (began,) = [event for event in read(place.path / ".deedbook/workspace") if event.type == "task.started"]
    place.run("sessions", "close", began.payload["session"], status=0)
    assert stands_in_page_as_unknown(place)
    assert "TASK_UNKNOWN" in place.run("tasks", "run", killed, status=1).err
    place.run("tasks", "decide", killed, "--happened", "--note", "the bank has it", status=0)
    assert (listed(place)["state"], listed(place)["decided"]) == ("succeeded", "happened")
    assert json.loads(place.run("tasks", "run", killed, status=0).out) is None
    assert len(effects(place)) == 1
    (decided,) = [event for event in read(place.path / ".deedbook/workspace") if event.type == "task.decided"]
    assert (decided.actor, decided.payload["by"], decided.payload["note"]) == ("user", "local", "the bank has it")
    place.run("verify", status=0)


def test_task_that_did_not_happen_runs_again_and_a_handler_that_knows_says_so_itself(place, killed):
    place.run("tasks", "decide", killed, "--did-not", status=0)
    assert listed(place)["state"] == "ready"
    (place.path / "hang").touch()
    process = place.start("tasks", "run", killed)
    until(lambda: len(effects(place)) == 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (place.path / "known").touch()
    told = json.loads(place.run("tasks", "run", killed, status=0).out)
    assert told == {"done": True, "args": {"n": 1}}
    assert (len(effects(place)), listed(place)["state"], listed(place)["runs"]) == (2, "succeeded", 2)
    ended = [event.payload for event in read(place.path / ".deedbook/workspace") if event.type == "task.ended"][-1]
    assert (ended["source"], ended["call"]) == ("reconcile", effects(place)[1])


def test_of_two_processes_that_run_a_task_at_once_one_has_the_effect(place):
    task = place.run("tasks", "create", "pay", status=0).out.strip()
    both = [place.start_fork("tasks", "run", task) for _ in range(2)]
    ran = [ended(process) for process in both]
    assert len(effects(place)) == 1
    assert {each.status for each in ran} <= {0, 1}
    assert all("TASK_RUNNING" in each.err for each in ran if each.status)
    assert listed(place)["state"] == "succeeded"


# --- within one process ---------------------------------------------------------------------------------------------


@pytest.fixture
def shop(lab):
    lab.done = []
    lab.tool("write", lambda args, ctx: lab.done.append(args) or {"n": len(lab.done)}, effects="write")
    return lab


def opened(lab, **options):
    kernel = lab.kernel()
    session = kernel.session(**options)
    lab._sessions.append(session)
    return Tasks(kernel, session)


def finished(*many):
    for tasks in many:
        tasks.close()


def test_of_several_that_run_a_task_at_once_one_has_the_effect(shop):
    many = [opened(shop) for _ in range(4)]
    task = many[0].create("write", {}).value.task.id
    start, came = threading.Barrier(len(many)), []

    def race(tasks):
        start.wait()
        came.append(tasks.run(task))

    threads = [threading.Thread(target=race, args=(tasks,)) for tasks in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = {each.error.code for each in came if not isinstance(each, Ok)}
    assert (len(shop.done), codes <= {"TASK_RUNNING"}) == (1, True)
    assert [each.value.result for each in came if isinstance(each, Ok)].count({"n": 1}) >= 1
    finished(*many)


@pytest.mark.parametrize("way", ["create", "direct_run"])
def test_of_several_that_use_a_key_at_once_all_mean_one_task(shop, way):
    many = [opened(shop) for _ in range(4)]
    start, came = threading.Barrier(len(many)), []

    def race(tasks):
        start.wait()
        came.append(getattr(tasks, way)("write", {}, idempotency_key="once"))

    threads = [threading.Thread(target=race, args=(tasks,)) for tasks in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with TaskBook.open(shop.state) as book:
        assert len(list(book)) == 1
    if way == "create":
        assert not [each for each in came if not isinstance(each, Ok)]
        assert len({each.value.task.id for each in came}) == 1
    else:
        assert len(shop.done) == 1
        assert {each.error.code for each in came if not isinstance(each, Ok)} <= {"TASK_RUNNING"}
    finished(*many)


def lost(shop, *, after=None, observers=False):
    """Begin a run whose process dies: its session ends as a crash leaves it, without `task.ended`."""
    tasks = opened(shop)
    task = tasks.create("write", {}).value.task.id
    keep, tasks._runs._write_end = tasks._runs._write_end, lambda *_, **__: None
    if after == "begun":
        tasks._session.door.before = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            tasks.run(task)
    else:
        tasks.run(task)
    tasks._runs._end = keep
    tasks._session.end(ok=False, reason="killed")
    tasks.close()
    return task


def test_run_that_died_before_its_intent_has_done_nothing_and_may_be_run_again(shop):
    task = lost(shop, after="begun")
    tasks = opened(shop)
    assert tasks.get(task).value.state == "unknown"
    assert tasks.run(task).value.result == {"n": 1}
    finished(tasks)


def test_run_that_died_after_its_outcome_takes_it_from_the_record(shop):
    task = lost(shop)
    tasks = opened(shop)
    ran = tasks.run(task).value
    assert (ran.result, ran.recorded, len(shop.done)) == ({"n": 1}, True, 1)
    finished(tasks)


def test_end_that_could_not_be_recorded_is_taken_from_the_record_in_the_same_session(shop, monkeypatch):
    tasks = opened(shop)
    task = tasks.create("write", {}).value.task.id
    append, before = WorkspaceLedger.append, []

    def failing(self, entries, **more):
        if '"task.ended"' in entries[0].label:
            before.append(entries)
            raise LedgerError(fault("LEDGER_LOCKED", "somebody else writes", retryable=True))
        return append(self, entries, **more)

    with monkeypatch.context() as patch:
        patch.setattr(WorkspaceLedger, "append", failing)
        assert tasks.run(task).error.code == "LEDGER_LOCKED"
    assert (len(before), len(shop.done)) == (1, 1)
    ran = tasks.run(task).value
    assert (ran.result, ran.recorded, len(shop.done)) == ({"n": 1}, True, 1)
    finished(tasks)


def test_effects_that_were_lowered_after_a_cut_off_run_do_not_make_it_runnable(shop):
    async def slow(args, ctx):
        import asyncio

        await asyncio.sleep(30)

    shop.tool("write", slow, effects="write", interruptible=True, timeout_ms=20)
    task = lost(shop)
    shop.tool("write", slow, effects="none", interruptible=True, timeout_ms=20)
    tasks = opened(shop)
    assert tasks.update(task, {}).error.code == "TASK_UNKNOWN"
    assert tasks.get(task).value.state == "unknown"
    finished(tasks)


def test_run_that_died_takes_what_hooks_have_left_of_its_result(shop):
    shop.hook("narrow", "PostToolUse", lambda call, result: {"n": "[hidden]"})
    task = lost(shop)
    tasks = opened(shop)
    assert tasks.run(task).value.result == {"n": "[hidden]"}
    finished(tasks)


def test_run_whose_outcome_was_failure_is_failed_and_may_be_tried_again(shop):
    def fail(args, ctx):
        shop.done.append(args)
        if len(shop.done) == 1:
            raise ValueError("no")
        return 2

    shop.tool("write", fail, effects="write")
    task = lost(shop)
    tasks = opened(shop)
    assert tasks.run(task).value.result == 2
    finished(tasks)


class Known:
    """A tool that never comes back, and knows afterwards what became of it; *told* is what it says."""

    spec = HandlerSpec(effects="write", takes={"type": "object"}, gives={"type": "object"}, reconciles=True)
    told = None

    def __init__(self, settings, host):
        pass

    def __call__(self, args, ctx):
        raise SystemExit

    def reconcile(self, args, idempotency_key):
        return type(self).told(args, idempotency_key)


def test_handler_that_is_wrong_about_its_call_says_nothing(shop, monkeypatch):
    shop.offer("tool", "known", Known)
    shop.settings(abilities={"known": {"summary": "Known.", "handler": {"tool": "known"}}})
    tasks = opened(shop)
    task = tasks.create("known", {}).value.task.id
    tasks._runs._write_end, keep = lambda *_, **__: None, tasks._runs._write_end
    monkeypatch.setattr(tasks._session.door, "perform", lambda ticket: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        tasks.run(task)
    tasks._session.end(ok=False, reason="killed")
    tasks.close()
    asked = []
    for told in (lambda *_: 1 / 0, lambda *_: "no object", lambda *_: float("nan"), lambda *_: None):
        monkeypatch.setattr(Known, "told", lambda args, key, told=told: asked.append(key) or told())
        tasks = opened(shop)
        assert tasks.run(task).error.code == "TASK_UNKNOWN"
        finished(tasks)
    assert len(set(asked)) == 1
    assert keep
    tasks = opened(shop, principal=Principal("local", "test"))
    assert tasks.decide(task, happened=False).value.state == "ready"
    finished(tasks)


def test_agent_decides_nothing_and_the_person_it_acts_for_does(shop):
    shop.settings(agents={"coder": {"expose": {"abilities": ["write"]}}})
    kernel = shop.kernel()
    session = kernel.session(principal=kernel.client("coder", via="test"))
    agent = Tasks(kernel, session)
    task = agent.create("write", {}).value.task.id
    agent._runs._write_end = lambda *_, **__: None
    session.door.perform = lambda ticket: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        agent.run(task)
    session.end(ok=False, reason="killed")
    agent.close()
    again = kernel.session(principal=kernel.client("coder", via="test"))
    shop._sessions.append(again)
    agent = Tasks(kernel, again)
    assert agent.decide(task, happened=True).error.code == "TASK_NOT_YOURS"
    other, person = opened(shop, principal=Principal("eve", "test")), opened(shop)
    assert other.decide(task, happened=True).error.code == "TASK_NOT_YOURS"
    assert person.decide(task, happened=True).value.state == "succeeded"
    assert agent.run(task).value.recorded
    finished(agent, other, person)


def test_workspace_ledger_that_cannot_be_written_refuses_the_run_before_any_effect(shop, monkeypatch):
    def failing(*_, **__):
        raise LedgerError(fault("LEDGER_BROKEN", "no space left"))

    tasks = opened(shop)
    task = tasks.create("write", {}).value.task.id
    with monkeypatch.context() as patch:
        patch.setattr(WorkspaceLedger, "append", failing)
        assert tasks.run(task).error.code == "LEDGER_BROKEN"
    assert shop.done == []
    finished(tasks)
