"""How the runtime ends: whatever moment a signal comes at, and whatever still hangs then, within a limit."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import serving
from commandline import SECONDS, environment, until

from deedbook.format.errors import DeedbookError
from deedbook_serve.bridging import session_table as bridging
from deedbook_serve.bridging.open_calls import OpenCalls
from deedbook_serve.bridging.session_table import AgentSessionTable as Agents
from deedbook_serve.bridging.session_table import _Slot

# Serves a workspace; once it does, a signal can only be taken by another thread than the one that accepts.
ELSEWHERE = """
import signal, sys, threading, time
from deedbook.kernel import open_kernel
from deedbook_serve.serving.process import serve

def ready(line):
    if line.startswith("serving "):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        print("ready", flush=True)

threading.Thread(target=threading.Event().wait, daemon=True).start()
with open_kernel(sys.argv[1]) as kernel:
    serve(kernel, ready=ready, clock=time.time)
print("ended", flush=True)
"""
# Is told to end, and never does.
HANGS = """
import threading
from deedbook_serve.deadline import Deadline

with Deadline(0.05, "the test") as deadline:
    deadline.begin()
    threading.Event().wait()
"""


def waits_for_connections(pid: int) -> bool:
    """Return whether the main thread of the process is inside epoll; where nobody can tell, it counts as so."""
    try:
        return "epoll" in Path(f"/proc/{pid}/task/{pid}/wchan").read_text()
    except OSError:
        return True


def test_signal_that_another_thread_takes_ends_the_runtime(tmp_path: Path):
    """Python runs a handler on the main thread, which waits for connections: what arrives must wake it."""
    place = serving.workspace(tmp_path / "workspace")
    command = [sys.executable, "-c", ELSEWHERE, str(place.path)]
    env = environment(**place.env)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    with serving.ending(process):
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        until(lambda: waits_for_connections(process.pid))
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=SECONDS)
        assert (out, process.returncode) == (b"ended\n", 0)


def test_process_that_does_not_end_in_time_says_where_it_hangs_and_is_ended():
    ran = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("the test did not end within 0.05 s after the request to stop; it is ended now")
    assert 'File "<string>", line 7 in <module>' in ran.stderr


def test_server_that_hangs_in_a_test_says_where_and_is_killed(tmp_path: Path):
    """The harness has a limit of its own."""
    deaf = "import signal, time; signal.signal(15, lambda *_: None); print(1, flush=True); time.sleep(1000)"
    process = subprocess.Popen(
        [sys.executable, "-c", deaf], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env=environment(**serving.STACKS),
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == b"1\n"
    with pytest.raises(AssertionError, match='File "<string>", line 1 in <module>'):
        serving.stop(process, seconds=0.2)
    assert process.returncode is not None


def test_session_of_an_agent_that_is_still_being_opened_is_left_to_the_next_start(lab, monkeypatch):
    monkeypatch.setattr(bridging, "OPENING_TIMEOUT", 0.05)
    agents = Agents(lab.kernel())
    stuck = agents._slots["agent", "local", "s"] = _Slot()
    with stuck.lock:
        assert agents.close() == 1


def test_call_that_is_judged_for_too_long_is_not_judged_twice(monkeypatch):
    monkeypatch.setattr("deedbook_serve.bridging.open_calls.JUDGING_TIMEOUT", 0.05)
    tickets, begun, go_on = OpenCalls(), threading.Event(), threading.Event()

    def judge() -> None:
        with tickets.reserve("call"):
            begun.set()
            go_on.wait(SECONDS)

    other = threading.Thread(target=judge)
    other.start()
    try:
        assert begun.wait(SECONDS)
        with pytest.raises(DeedbookError, match="ask again"), tickets.reserve("call"):
            pass
    finally:
        go_on.set()
        other.join(SECONDS)
    with tickets.reserve("call") as held:
        assert held is None
