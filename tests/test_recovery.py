"""Sessions whose process was killed: nothing acknowledged is lost, and what was begun ends as unknown, once."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deedbook.format.errors import LedgerError
from deedbook.format.files import Folder
from deedbook.format.reader import list_sessions, read
from deedbook.ledger.recovery import GIVEN_UP
from deedbook.workspace.workspace import read_workspace
from deedbook_inspect.upkeep import close_session

# What is killed: a session that has made calls, one of which never comes back, and says on its output what it was told.
VICTIM = """
import sys, time
from pathlib import Path
from deedbook_testing import Lab

def hang(args, ctx):
    print("running", flush=True)
    time.sleep(60)

def flow(args, run):
    run.context.clarify({"what": "hang"})
    run.call("outer", {})

lab = Lab(Path(sys.argv[1]))
lab.tool("echo", lambda args, ctx: args, effects="write")
lab.tool("hang", hang, effects="write")
lab.tool("outer", lambda args, ctx: ctx.call("hang", args), uses=["hang"])
lab.skill("wait", allows="outer")
lab.flow("work", flow)
session = lab.session()
print(session.id, flush=True)
for n in range(20):
    result = session.call("echo", {"n": n})
    print(result.value["n"], flush=True)
session.run("wait")
"""


@pytest.fixture
def killed(lab):
    """Kill a session in the middle of a call; return its id and what it had acknowledged before."""
    lab.path.mkdir(exist_ok=True)
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(lab.path)], stdout=subprocess.PIPE, text=True)
    said = []
    for line in victim.stdout:
        said.append(line.strip())
        if said[-1] == "running":
            break
    os.kill(victim.pid, signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    victim.stdout.close()
    return said[0], [int(each) for each in said[1:-1]]


def listed(lab):
    with Folder.at(lab.state) as state:
        return [(each.id, each.state) for each in list_sessions(state)]


def test_killed_session_is_listed_as_interrupted_and_has_all_that_it_acknowledged(lab, killed):
    identity, acknowledged = killed
    assert acknowledged == list(range(20))
    assert listed(lab) == [(identity, "interrupted")]
    results = [e.payload["result"]["n"] for e in lab.all("tool.result", identity)]
    assert results == acknowledged
    report = lab.verify(identity)
    assert report.sound
    assert "calls without an outcome: 3; what became of them is unknown" in report.notes


def test_closing_ends_open_calls_as_unknown_innermost_first_and_halts_the_context(lab, killed):
    identity, _ = killed
    assert close_session(read_workspace(lab.path), identity) == 3
    *_, inner, outer, flow, halted, end = lab.events(identity)
    assert [
        (each.type, each.payload.get("tool_name") or each.payload.get("flow")) for each in (inner, outer, flow)
    ] == [
        ("tool.error", "hang"),
        ("tool.error", "outer"),
        ("flow.error", "work"),
    ]
    for each in (inner, outer, flow):
        assert (each.payload["outcome"], each.payload["code"], each.payload["retryable"]) == (
            "unknown",
            "OUTCOME_UNKNOWN",
            False,
        )
        assert (each.actor, each.principal) == ("system", "local")
    assert (halted.type, halted.parent) == ("context.halted", flow.parent)
    assert (end.type, end.payload) == ("session.end", {"ok": False, "reason": GIVEN_UP})
    assert listed(lab) == [(identity, "ended")]
    assert lab.verify(identity).sound


def test_closing_writes_the_new_head_into_the_workspace_ledger(lab, killed):
    identity, _ = killed
    close_session(read_workspace(lab.path), identity)
    heads = [event.payload for event in read(lab.state / "workspace") if event.type == "ledger.session"]
    assert heads[-1] == {
        "session_id": identity,
        "events": len(lab.events(identity)),
        "head": lab.verify(identity).head,
        "state": "interrupted",
    }


def test_closing_twice_is_refused_and_changes_nothing(lab, killed):
    identity, _ = killed
    close_session(read_workspace(lab.path), identity)
    before = lab.ledger(identity).read_bytes()
    with pytest.raises(LedgerError) as caught:
        close_session(read_workspace(lab.path), identity)
    assert caught.value.error.code == "SESSION_ENDED"
    assert lab.ledger(identity).read_bytes() == before


def test_torn_tail_is_kept_aside_and_recorded_before_the_calls_are_closed(lab, killed):
    identity, _ = killed
    with lab.ledger(identity).open("ab") as file:
        file.write(b'{"schema_version":"1.1","session_id":"half a li')
    close_session(read_workspace(lab.path), identity)
    types = lab.types(identity)
    assert types[-6:] == ["ledger.recovered", "tool.error", "tool.error", "flow.error", "context.halted", "session.end"]
    recovered = lab.payload("ledger.recovered", identity)
    assert (lab.ledger(identity).parent / recovered["kept"]).read_bytes().startswith(b'{"schema_version"')


def test_session_that_somebody_writes_cannot_be_closed(lab):
    session = lab.session()
    with pytest.raises(LedgerError) as caught:
        close_session(read_workspace(lab.path), session.id)
    assert caught.value.error.code == "LEDGER_LOCKED"
    session.end(ok=True, reason="done")
    assert lab.types() == ["session.start", "session.end"]


@pytest.mark.parametrize("identity", ["0" * 32, "../workspace", "", ".", "a/b", "x" * 200, "a\0b"])
def test_session_that_is_not_there_cannot_be_closed(lab, identity):
    lab.session().end(ok=True, reason="done")
    with pytest.raises(LedgerError) as caught:
        close_session(read_workspace(lab.path), identity)
    assert caught.value.error.code == "SESSION_NOT_FOUND"


def test_session_that_was_killed_between_calls_has_nothing_unknown(lab):
    script = VICTIM.replace('session.run("wait")', 'print("running", flush=True)\ntime.sleep(60)')
    lab.path.mkdir(exist_ok=True)
    victim = subprocess.Popen([sys.executable, "-c", script, str(lab.path)], stdout=subprocess.PIPE, text=True)
    with victim.stdout:
        identity = victim.stdout.readline().strip()
        while victim.stdout.readline().strip() != "running":
            pass
        victim.kill()
        victim.wait()
    assert close_session(read_workspace(lab.path), identity) == 0
    assert lab.types(identity)[-2:] == ["tool.result", "session.end"]


def test_another_session_goes_on_beside_one_that_was_killed(lab, killed):
    identity, _ = killed
    shutil.rmtree(lab.path / ".system")
    lab.settings()
    with lab.session() as session:
        close_session(read_workspace(lab.path), identity)
    assert dict(listed(lab)) == {identity: "ended", session.id: "ended"}


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.02])
def test_kill_at_any_moment_leaves_a_sound_ledger_with_all_that_was_acknowledged(lab, moment):
    script = VICTIM.replace("range(20)", "range(10_000)")
    lab.path.mkdir(exist_ok=True)
    victim = subprocess.Popen([sys.executable, "-c", script, str(lab.path)], stdout=subprocess.PIPE, text=True)
    identity = victim.stdout.readline().strip()
    victim.stdout.readline()
    time.sleep(moment)
    victim.kill()
    heard = victim.stdout.read().split("\n")[:-1]
    victim.stdout.close()
    victim.wait()
    told = [json.loads(each) for each in heard]
    assert listed(lab) == [(identity, "interrupted")]
    assert close_session(read_workspace(lab.path), identity) in (0, 1)
    results = [e.payload["result"]["n"] for e in lab.all("tool.result", identity)]
    assert results[: len(told) + 1] == [0, *told]
    assert Path(lab.ledger(identity)).exists()
