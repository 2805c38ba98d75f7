"""``deedbook serve`` as a process of the system: what it finds dead when it begins, and how it ends itself."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.reader import list_sessions, read
from deedbook.maintenance.processes import read_processes
from deedbook_serve.client import Runtime


@pytest.fixture
def serve(tmp_path):
    """Start the real command; gives the process and what it said before it served. It is killed at the end."""
    (tmp_path / ".system").mkdir()
    (tmp_path / ".system/deedbook.yaml").write_text("schema_version: v1\n")
    started = []

    def start():
        command = [str(Path(sys.executable).parent / "deedbook"), "-C", str(tmp_path), "serve"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        started.append(process)
        said = []
        for line in process.stderr:
            if line.startswith("serving "):
                return process, said
            said.append(line.strip())
        raise AssertionError(said)

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()


def processes(place):
    with Folder.at(place / ".deedbook") as state:
        return list(read_processes(state).processes.values())


def test_session_whose_first_line_is_torn_is_removed_when_the_runtime_begins(serve, tmp_path):
    torn = tmp_path / ".deedbook/sessions" / ("e1" * 16) / ".events.jsonl"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b'{"schema_version":"1.1","session_id":"e1e1')
    _, said = serve()
    assert any("42 bytes of its first event are kept" in line for line in said)
    assert not torn.parent.exists()


def test_killed_runtime_is_recovered_by_the_next_and_one_that_is_stopped_needs_no_recovery(serve, tmp_path):
    killed, said = serve()
    with Runtime(tmp_path) as runtime:
        lost, done = runtime.open(), runtime.open()
        runtime.end(done)
        (first,) = processes(tmp_path)
        assert first.state == "running"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with pytest.raises(DeedbookError):
            runtime.health()
    assert [each.state for each in processes(tmp_path)] == ["died"]
    stopped, said = serve()
    assert [line for line in said if first.id in line or lost in line] == [
        f"process {first.id} died",
        f"session {lost} is closed; no call was open",
    ]
    with Folder.at(tmp_path / ".deedbook") as state:
        assert {each.id: each.state for each in list_sessions(state)} == {lost: "ended", done: "ended"}
    second = processes(tmp_path)[1]
    assert (second.kind, second.state, second.pid) == ("recover", "running", stopped.pid)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(20) == 0
    third, said = serve()
    assert not [line for line in said if "died" in line or "closed" in line]
    assert [each.kind for each in processes(tmp_path)] == ["cold", "recover", "warm"]
    assert [each.state for each in processes(tmp_path)] == ["died", "shut down", "running"]
    boots = [event for event in read(tmp_path / ".deedbook/workspace") if event.type == "system.boot"]
    assert "closed" not in boots[2].payload
    assert third.poll() is None
