"""Recovery with real processes and SIGKILL: what died is ended once and told; what lives is left alone."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deedbook.format.errors import fault
from deedbook.format.files import Folder
from deedbook.format.reader import list_sessions, read
from deedbook.format.schema import Schemas, data_folder
from deedbook.kernel import open_kernel
from deedbook.ledger.ledger import Ledger
from deedbook.ledger.recovery import REASON
from deedbook.maintenance.closing import RecoveryResult, close
from deedbook.maintenance.liveness import FOLDER
from deedbook.maintenance.processes import read_processes
from deedbook_audit.verify import verify_file

SCHEMAS = Schemas.load(data_folder("schemas"))

# A process of the system: it begins sessions, opens a call in each, says their ids, and lives until it is killed.
MEMBER = """
import sys, time
from pathlib import Path
from deedbook_testing import Lab

lab = Lab(Path(sys.argv[1]))
lab.tool("write", lambda args, ctx: args, effects="write")
kernel = lab.kernel()
for _ in range(int(sys.argv[2])):
    session = kernel.session()
    session.call("write", {"n": 1})
    session.door.before(session.caller, "write", {"n": 2}, session.ledger.root).value
    print(session.id, flush=True)
print(kernel.identity.process_id, flush=True)
time.sleep(600)
"""
# A process that recovers as soon as it is told to, and says what it found.
RECOVERER = """
import json, sys
from deedbook.kernel import open_kernel

with open_kernel(sys.argv[1]) as kernel:
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(kernel.recover().as_json()), flush=True)
"""


def python(code, *args):
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def begin(lab):
    """Start processes that begin sessions; gives each with its sessions and its id. They are killed at the end."""
    started = []

    def start(count=1):
        lab.path.mkdir(exist_ok=True)
        member = python(MEMBER, lab.path, count)
        started.append(member)
        *ids, process = (member.stdout.readline().strip() for _ in range(count + 1))
        return member, ids, process

    yield start
    for member in started:
        stop(member)


def stop(member):
    member.kill()
    member.wait()
    member.stdout.close()
    member.stdin.close()


@pytest.fixture
def bare(lab):
    """Give the workspace's folder after taking out the abilities that only the members know."""

    def take():
        (lab.path / ".system/deedbook.yaml").write_text("schema_version: v1\n")
        return lab.path

    return take


def listed(place):
    with Folder.at(place / ".deedbook") as state:
        return {each.id: each.state for each in list_sessions(state)}


def surveyed(place):
    with Folder.at(place / ".deedbook") as state:
        return read_processes(state)


def own(place, kind):
    return [event for event in read(place / ".deedbook/workspace") if event.type == kind]


def told(place, session):
    return [event.type for event in read(place / ".deedbook/sessions" / session)]


def test_what_died_is_ended_what_lives_is_left_alone_and_the_boot_says_which(begin, bare):
    dead, lost, died = begin(2)
    alive, living, running = begin(1)
    stop(dead)
    place = bare()
    assert {process.id: process.state for process in surveyed(place).processes.values()} == {
        died: "died",
        running: "running",
    }
    with open_kernel(place) as kernel:
        found = kernel.recover()
        session = kernel.session()
        session.end(ok=True, reason="done")
    assert dict(found.closed) == dict.fromkeys(lost, 1)
    assert (found.removed, dict(found.refused), found.died) == ([], {}, [died])
    for name in lost:
        assert told(place, name)[-2:] == ["tool.error", "session.end"]
        *_, outcome, end = read(place / ".deedbook/sessions" / name)
        assert (outcome.payload["outcome"], end.payload["reason"]) == ("unknown", REASON)
    assert listed(place) == {**dict.fromkeys(lost, "ended"), living[0]: "open", session.id: "ended"}
    boot = own(place, "system.boot")[-1]
    assert {name: boot.payload[name] for name in ("kind", "closed", "removed", "refused", "died")} == {
        "kind": "recover",
        **found.as_json(),
    }
    assert own(place, "system.run")[-1].parent == boot.span
    heads = {event.payload["session_id"]: event.payload["state"] for event in own(place, "ledger.session")}
    assert heads == {**dict.fromkeys(lost, "interrupted"), living[0]: "open", session.id: "ended"}
    assert [each.name for each in (place / ".deedbook" / FOLDER).iterdir()] == [running]
    assert alive.poll() is None
    assert sorted(found.lines()) == sorted(
        [f"process {died} died", *(f"session {name} is closed; 1 open call is unknown" for name in lost)]
    )


def test_second_recovery_finds_nothing_and_a_death_is_told_once(begin, bare):
    dead, lost, died = begin(1)
    stop(dead)
    place = bare()
    with open_kernel(place) as kernel:
        assert kernel.recover().died == [died]
    before = (place / ".deedbook/sessions" / lost[0] / ".events.jsonl").read_bytes()
    with open_kernel(place) as kernel:
        assert not kernel.recover()
    assert (place / ".deedbook/sessions" / lost[0] / ".events.jsonl").read_bytes() == before
    assert [event.payload["kind"] for event in own(place, "system.boot")][-2:] == ["recover", "warm"]
    assert [process.state for process in surveyed(place).processes.values()] == ["died", "shut down", "shut down"]


def test_long_lived_process_is_told_before_its_first_session(begin, bare):
    dead, _, _ = begin(1)
    stop(dead)
    place = bare()
    with open_kernel(place) as kernel:
        kernel.recover()
        assert surveyed(place).processes[kernel.identity.process_id].state == "running"
    assert len(own(place, "system.boot")) == 2


def test_recoveries_at_the_same_time_end_each_session_once(begin, bare):
    dead, lost, died = begin(6)
    stop(dead)
    place = bare()
    recoverers = [python(RECOVERER, place) for _ in range(3)]
    for each in recoverers:
        assert each.stdout.readline() == "ready\n"
    for each in recoverers:
        each.stdin.write("\n")
        each.stdin.flush()
    found = [json.loads(each.communicate()[0]) for each in recoverers]
    assert [each.returncode for each in recoverers] == [0, 0, 0]
    closed = sorted(one["session_id"] for each in found for one in each["closed"])
    assert closed == sorted(lost)
    assert all(not each["refused"] and not each["removed"] and set(each["died"]) <= {died} for each in found)
    assert sum(bool(each["died"]) for each in found) >= 1
    for name in lost:
        assert told(place, name).count("session.end") == 1
    verified(place)


def test_killed_recovery_is_taken_up_by_the_next(begin, bare):
    dead, lost, died = begin(6)
    stop(dead)
    place = bare()
    for moment in (0.0, 0.004, 0.015):
        recoverer = python(RECOVERER, place)
        assert recoverer.stdout.readline() == "ready\n"
        recoverer.stdin.write("\n")
        recoverer.stdin.flush()
        time.sleep(moment)
        recoverer.send_signal(signal.SIGKILL)
        stop(recoverer)
    with open_kernel(place) as kernel:
        kernel.recover()
        assert not kernel.recover()
    assert listed(place) == dict.fromkeys(lost, "ended")
    assert {each.state for each in surveyed(place).sessions.values()} <= {"interrupted", "ended"}
    for name in lost:
        assert told(place, name).count("session.end") == 1
    assert surveyed(place).processes[died].state == "died"
    verified(place)


def test_head_that_a_dead_process_did_not_tell_is_told_by_recovery(begin, bare):
    dead, (name,), _ = begin(1)
    stop(dead)
    place = bare()
    with open_kernel(place) as kernel:
        close(kernel.state, name, kernel.sealer)  # as a recovery that is killed before it tells the head
        assert surveyed(place).sessions[name].state == "open"
        kernel.recover()
    assert surveyed(place).sessions[name].state == "ended"
    assert surveyed(place).sessions[name].events == len(told(place, name))


def test_session_with_missing_lines_is_left_as_it_is_and_reported(begin, bare, lab):
    lab.damaged = True
    dead, (cut, gone, whole), _ = begin(3)
    stop(dead)
    place = bare()
    file = place / ".deedbook/sessions" / cut / ".events.jsonl"
    file.write_bytes(b"")
    lost = place / ".deedbook/sessions" / gone / ".events.jsonl"
    lost.unlink()
    lost.parent.rmdir()
    with open_kernel(place) as kernel:
        found = kernel.recover()
    assert dict(found.closed) == {whole: 1}
    assert {name: why.code for name, why in found.refused.items()} == dict.fromkeys((cut, gone), "LEDGER_UNSOUND")
    assert file.read_bytes() == b""
    assert not lost.parent.exists()
    assert {each["session_id"] for each in own(place, "system.boot")[-1].payload["refused"]} == {cut, gone}
    assert [line for line in found.lines() if "is left unchanged" in line]


def test_damaged_session_is_reported_and_not_touched(begin, bare, lab):
    lab.damaged = True
    dead, (name,), _ = begin(1)
    stop(dead)
    place = bare()
    file = place / ".deedbook/sessions" / name / ".events.jsonl"
    raw = file.read_bytes().replace(b'"actor":"tool"', b'"actor":"toll"').replace(b'"span_id":"', b'"span_id":"x')
    file.write_bytes(raw)
    with open_kernel(place) as kernel:
        found = kernel.recover()
    assert {name: why.code for name, why in found.refused.items()} == {name: "LEDGER_UNSOUND"}
    assert file.read_bytes() == raw


def test_session_that_never_began_is_removed_and_one_that_lives_goes_on(lab):
    lab.settings()
    with lab.kernel() as kernel:
        (lab.path / ".deedbook/sessions" / ("e1" * 16)).mkdir(parents=True)
        began = kernel.session()
        found = kernel.recover()
        assert (dict(found.closed), [each.id for each in found.removed]) == ({}, ["e1" * 16])
        assert began.call("nothing", {}).error.code == "TOOL_NOT_FOUND"
        began.end(ok=True, reason="done")
    assert listed(lab.path) == {began.id: "ended"}


TORN = {"half": lambda line: line[:90], "zeros": lambda line: bytes(700), "a byte": lambda line: line[:1]}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("left", TORN)
def test_session_whose_first_line_was_not_written_whole_is_removed_and_its_bytes_are_kept(lab, left, sealed):
    name = "e1" * 16
    with lab.kernel() as kernel:
        kernel.session().end(ok=True, reason="done")
    torn = TORN[left](lab.ledger(next(iter(listed(lab.path)))).read_bytes())
    folder = lab.path / ".deedbook/sessions" / name
    (folder / "sealed").mkdir(parents=True)
    (folder / ".events.jsonl").write_bytes(torn)
    if sealed:  # a value is written before the line that names it
        (folder / "sealed" / ("ab" * 32)).write_bytes(b"half a va")
    assert listed(lab.path)[name] == "interrupted"
    with lab.kernel() as kernel:
        found = kernel.recover()
        assert not kernel.recover()
    assert ([each.id for each in found.removed], dict(found.refused), dict(found.closed)) == ([name], {}, {})
    assert not folder.exists()
    (kept,) = (lab.path / ".deedbook/workspace").glob(".torn-session-*")
    assert kept.read_bytes() == torn
    (recovered,) = own(lab.path, "ledger.recovered")
    assert recovered.payload == {
        "offset": 0, "bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest(), "kept": kept.name,
    }  # fmt: skip
    assert own(lab.path, "system.boot")[-1].payload["removed"] == [name]
    (line,) = found.lines()
    assert kept.name in line


def test_first_line_that_was_recorded_and_is_torn_now_is_a_cut_and_nothing_is_removed(lab):
    lab.damaged = True
    with lab.kernel() as kernel:
        session = kernel.session()
        session.end(ok=True, reason="done")
        file = lab.ledger(session.id)
        file.write_bytes(torn := file.read_bytes()[:90])
        found = kernel.recover()
    assert {name: why.code for name, why in found.refused.items()} == {session.id: "LEDGER_UNSOUND"}
    assert file.read_bytes() == torn


def test_first_line_that_is_being_written_is_left_alone(lab):
    """Whoever begins a session holds its lock."""
    name = "e1" * 16
    with lab.kernel() as kernel:
        with Folder.at(lab.path / ".deedbook") as state, state.sub(f"sessions/{name}", create=True) as folder:
            ledger = Ledger.create(folder, name, "7a" * 16)
            with lab.ledger(name).open("ab") as file:
                file.write(b'{"schema_version"')
            assert not kernel.recover()
            ledger.close()
        assert [each.id for each in kernel.recover().removed] == [name]


def test_torn_end_of_a_session_that_has_ended_is_set_aside(lab):
    with lab.kernel() as kernel:
        session = kernel.session()
        session.end(ok=True, reason="done")
        with lab.ledger(session.id).open("ab") as file:
            file.write(b'{"schema_version"')
        kernel.recover()
        assert not kernel.recover()
    assert told(lab.path, session.id)[-2:] == ["session.end", "ledger.recovered"]
    (*_, head) = own(lab.path, "ledger.session")
    assert (head.payload["events"], head.payload["state"]) == (3, "ended")


def test_recovery_beside_a_process_that_begins_sessions_harms_none(lab):
    """A folder in which a session is just being begun looks like one that is left behind."""
    lab.settings()
    with lab.kernel() as kernel:
        kernel.session().end(ok=True, reason="done")
    beginner = python(
        "import sys\nfrom deedbook.kernel import open_kernel\n"
        "with open_kernel(sys.argv[1]) as kernel:\n"
        "    for _ in range(60):\n"
        "        kernel.session().end(ok=True, reason='done')\n"
        "print('done')",
        lab.path,
    )
    with open_kernel(lab.path) as kernel:
        while beginner.poll() is None:
            found = kernel.recover()
            assert not found.closed
            assert not found.refused
    assert beginner.stdout.read() == "done\n"
    stop(beginner)
    assert set(listed(lab.path).values()) == {"ended"}
    assert len(listed(lab.path)) == 61


# Processes one after the other, each with sessions; it says when the first of them has begun.
BEGINNER = """
import sys
from deedbook.kernel import open_kernel

while True:
    with open_kernel(sys.argv[1]) as kernel:
        for _ in range(2):
            kernel.session().end(ok=True, reason="done")
            print("begun", flush=True)
"""


def test_process_that_is_killed_at_any_moment_leaves_what_the_next_one_can_end(lab):
    """Between lifeline and boot, between boot and end of a session, between shutdown and the next boot."""
    lab.settings()
    place = lab.path
    with lab.kernel() as kernel:
        kernel.session().end(ok=True, reason="done")
    for moment in (0.0, 0.003, 0.007, 0.013, 0.021):
        beginner = python(BEGINNER, place)
        assert beginner.stdout.readline() == "begun\n"
        time.sleep(moment)
        stop(beginner)
        with open_kernel(place) as kernel:
            found = kernel.recover()
        assert not found.refused
        assert set(listed(place).values()) == {"ended"}
        assert list((place / ".deedbook" / FOLDER).iterdir()) == []
    states = {each.id: each.state for each in surveyed(place).processes.values()}
    assert "running" not in states.values()
    told_dead = {name for boot in own(place, "system.boot") for name in boot.payload.get("died", ())}
    assert told_dead == {name for name, state in states.items() if state == "died"}
    verified(place)


def verified(place):
    for file in sorted(Path(place, ".deedbook").glob("*/**/.events.jsonl")):
        report = verify_file(file, schemas=SCHEMAS)
        assert report.sound, "\n".join(report.lines())


def test_recovery_that_found_nothing_says_nothing():
    assert not RecoveryResult()
    assert list(RecoveryResult().lines()) == []
    refused = RecoveryResult(refused={"s": fault("LEDGER_UNSOUND", "it was cut")})
    assert refused
    assert list(refused.lines()) == ["session s is left unchanged: it was cut"]
