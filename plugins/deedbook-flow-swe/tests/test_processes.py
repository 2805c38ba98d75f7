"""The agents of a pipeline as processes of their own: the run is the same, and only the runner acts."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from dying import die
from shop import TASK, Shop, git

from deedbook import Ok

AGENTS = ("outliner", "builder", "checker")


@pytest.fixture
def shop(lab):
    made = Shop(lab, with_git=True)
    made.change("contracts/check.yaml", "passed: PASSED.md", "passed: MERGED.md")
    made.good()
    return made


@pytest.fixture
def processes(shop):
    """Run each agent as a process, which has its inbox and nothing of the runner's environment."""
    shop.change("pipeline.yaml", '"read":', '"dispatch": "swe/dispatch", "read":')
    shop.lab.settings(abilities={"swe/dispatch": {"summary": "Ask an agent.", "handler": {"tool": "swe-dispatch"}}})
    program, inbox = Path(sys.executable).with_name("deedbook"), shop.lab.path / "shared/inbox"
    started = [
        subprocess.Popen([program, "swe", "agent", name, "--inbox", inbox], env={"PATH": os.environ["PATH"]}, cwd="/")
        for name in AGENTS
    ]
    yield shop
    for each in started:
        each.terminate()
    assert [each.wait(30) for each in started] == [0, 0, 0]


def test_run_with_agents_as_processes_merges_the_change(processes, lab):
    found = processes.run()
    assert found.value.state == "COMPLETED", found
    assert git(processes.repository, "log", "--format=%s").split("\n")[0] == f"merge: {TASK['title']}"
    assert processes.asked() == ["outliner", "builder", "builder", "checker"]
    asked = [each.payload["args"]["task"]["agent"] for each in lab.all("tool.call") if "task" in each.payload["args"]]
    assert set(asked) == set(AGENTS)


TESTS = """
import json, pathlib
good = pathlib.Path("shop.py").read_text() == "LIMIT = 2\\n"
counts = dict(passed=int(good), failed=int(not good), exit_code=int(not good))
print(json.dumps(dict(schema_version="v1", unit_id="unit-001", **counts)))
"""


@pytest.fixture
def executor(processes):
    """Run the programs of the pipeline in the process of an executor."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = f"{folder}/socket"
        processes.lab.settings(abilities={"swe/tests": {
            "summary": "Run the tests.", "handler": {"tool": "sandbox"}, "effects": "none",
            "with": {"argv": ["python3", "-c", TESTS], "code": "{code}", "output": "json", "executor": place},
            "schema_in": {
                "type": "object", "required": ["code"], "properties": {"code": {"type": "string"}, "tests": True},
            },
            "schema_out": True,
        }})  # fmt: skip
        command = [sys.executable, "-m", "deedbook_tool_sandbox.executor", place]
        started = subprocess.Popen(command, env={"PATH": os.environ["PATH"]}, cwd="/")
        until = time.monotonic() + 60
        while not Path(place).exists():
            assert started.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        yield processes
        started.terminate()
        assert started.wait(60) == 0


def test_run_with_agents_and_executor_as_processes_merges_the_change(executor, lab):
    found = executor.run()
    assert found.value.state == "COMPLETED", found
    assert git(executor.repository, "log", "--format=%s").split("\n")[0] == f"merge: {TASK['title']}"
    results = [each.payload["result"] for each in lab.all("tool.result") if "limits" in str(each.payload)]
    assert results
    assert all(each["limits"]["network"] == "namespace" for each in results)


def test_each_agent_gets_its_own_inbox_only(processes):
    processes.run()
    inboxes = processes.lab.path / "shared/inbox"
    assert sorted(each.name for each in inboxes.iterdir()) == sorted(AGENTS)
    for name in AGENTS:
        requests = list((inboxes / name).glob("*.request.json"))
        assert requests
        assert all(f'"agent":"{name}"' in each.read_text() for each in requests)


def test_runner_that_died_while_an_agent_worked_goes_on(processes):
    lab = processes.lab
    child = os.fork()
    if not child:
        try:
            with lab.session("run") as session:
                count = itertools.count(1)
                session.ledger.subscribe(lambda event: die() if _is_third_dispatch(event, count) else None)
                session.run(json.dumps(TASK), "swe/small")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    [session] = os.listdir(lab.state / "sessions")
    with lab.kernel() as kernel, kernel.resume(session) as again:
        found = again.go_on()
    assert isinstance(found, Ok), found
    assert found.value.state == "COMPLETED"


def _is_third_dispatch(event, count):
    return event.type == "tool.call" and event.payload["tool_name"] == "swe/dispatch" and next(count) == 3
