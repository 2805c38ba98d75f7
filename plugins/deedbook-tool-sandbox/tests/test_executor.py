"""Programs that an executor runs: a process of its own, reached over a Unix socket."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deedbook_tool_sandbox import remote
from deedbook_tool_sandbox.executor import listen
from deedbook_tool_sandbox.executor_protocol import LIMITS, MOST, encode_answer
from deedbook_tool_sandbox.launchers import SIZE

ORDER = {"limits": dict.fromkeys(LIMITS, 1), "environment": None, "degraded": False, "schema_version": "v1"}


@pytest.fixture
def place():
    """Return the path of a socket: a short one, since sockets have no other."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield f"{folder}/socket"


@contextmanager
def executing(place, *options, ready=True, before=()):
    """Run an executor as a process, with the command *before* before its own; give it, with its errors as a pipe."""
    command = [*before, sys.executable, "-m", "deedbook_tool_sandbox.executor", place, *options]
    with subprocess.Popen(
        command, env={"PATH": os.environ["PATH"]}, stderr=subprocess.PIPE, text=True, cwd="/"
    ) as process:
        until = time.monotonic() + 60
        while ready and not accepts(place):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.01)
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


def accepts(place):
    with socket.socket(socket.AF_UNIX) as trial:
        return trial.connect_ex(place) == 0


@pytest.fixture
def executor(place):
    with executing(place) as process:
        yield process


def descendants(pid):
    """Return the commands of all processes below *pid*."""
    found = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in each.read_text().split():
            try:
                found += [Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()]
            except OSError:
                continue
            found += descendants(child)
    return found


def wait_until(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_executor_runs_the_program_with_copies_of_the_files_and_the_same_limits(call, executor, place):
    program = """
        from pathlib import Path
        print(Path("notes.txt").read_text(), Path("/data/facts.txt").read_text(), sep="", end="")
        Path("report.txt").write_text("done")
    """
    here = call(program, outputs=["report.txt"])
    there = call(program, outputs=["report.txt"], executor=place)
    assert there == here
    assert there["stdout"] == "from outside\nfacts\n"
    assert there["outputs"] == {"report.txt": "done"}
    assert there["limits"]["network"] == "namespace"


def test_kept_launcher_of_an_executor_that_was_started_again_is_replaced(lab, declare, place):
    declare(executor=place)
    session = lab.session()
    for _ in range(2):
        with executing(place):
            assert session.call("it", {"program": "print(1)"}).value["stdout"] == "1\n"
    assert not Path(place).exists()


def test_program_runs_below_the_executor_and_ends_when_its_client_goes(executor, place, lab, declare):
    declare(executor=place)
    child = os.fork()
    if not child:
        lab.session().call("it", {"program": "import time; time.sleep(100)"})
        os._exit(0)
    wait_until(lambda: any("bwrap" in each for each in descendants(executor.pid)))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until(lambda: not any("bwrap" in each for each in descendants(executor.pid)))


def test_environment_of_an_executor_is_checked_there(fails, executor, place):
    error = fails("", executor=place, environment={"path": sys.prefix, "digest": "0" * 64})
    assert error.code == "BINDING_INVALID"
    assert f"the executor at {place}: environment: the digest of " in error.message


# --- refusals of the tool ---------------------------------------------------------------------------------------------


def test_executor_that_is_not_there_is_named_with_its_command(fails, place):
    error = fails("", executor=place)
    assert error.code == "SANDBOX_REFUSED"
    assert f"start it with: python3 -m deedbook_tool_sandbox.executor {place}" in error.message


def test_executor_of_another_user_is_refused_and_gets_nothing(fails, place):
    with listen(place, shared=False) as listening:
        error = fails("", executor={"path": place, "user": 4242})
        connection, _ = listening.accept()
        with connection:
            assert connection.recv(1) == b""
    assert error.code == "SANDBOX_REFUSED"
    assert f"runs as user {os.getuid()}, expected 4242" in error.message


@pytest.fixture
def answering(place):
    """Let a thread accept one connection, read, and send what the test gives."""
    threads = []

    def begin(*parts):
        listening = listen(place, shared=False)

        def attend():
            with listening, listening.accept()[0] as connection, suppress(ConnectionError):
                for part in parts:
                    connection.recv(1 << 20)
                    connection.sendall(part)
                while connection.recv(1 << 20):
                    pass

        threads.append(threading.Thread(target=attend))
        threads[-1].start()

    yield begin
    for each in threads:
        each.join(60)
        assert not each.is_alive()


def framed(data):
    return SIZE.pack(len(data)) + data


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (framed(b"{"), "it is not the JSON that was expected"),
        (framed(b'{"refused":null,"refused":null}'), "it is not the JSON that was expected"),
        (framed(b"[]"), "it is no object"),
        (framed(b"{}"), "it is no answer of an executor"),
        (SIZE.pack(MOST + 1), f"it has more than {MOST} bytes"),
        (b"HTTP/1.1 200 OK\r\n", f"it has more than {MOST} bytes"),
    ],
)
def test_answer_that_is_none_is_refused(fails, place, answering, answer, why):
    answering(answer)
    error = fails("", executor=place)
    assert error.code == "SANDBOX_REFUSED"
    assert f"the executor at {place} sent no answer: {why}" in error.message


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (framed(b"no report"), "it sent something else than a report"),
        (framed(framed(b"ended=exit") * 3), "it sent something else than a report"),
        (SIZE.pack(1 << 50), "its report is too large"),
    ],
)
def test_report_that_is_none_is_refused(fails, place, answering, report, why):
    answering(encode_answer(), report)
    error = fails("", executor=place)
    assert (error.code, error.message) == ("SANDBOX_REFUSED", f"the sandbox could not be made: {why}")


def test_late_answer_is_refused(fails, place, answering, monkeypatch):
    monkeypatch.setattr(remote, "_SECONDS", 0.05)
    answering(b"")
    error = fails("", executor=place)
    assert (error.code, error.message) == ("SANDBOX_REFUSED", f"the executor at {place} did not answer within 0.05 s")


def test_late_report_is_refused(lab, declare, place, answering, monkeypatch):
    monkeypatch.setattr("deedbook_tool_sandbox.tool._GRACE", 0.05)
    declare(executor=place, limits={"seconds": 0.05})
    answering(encode_answer())
    assert lab.session().call("it", {"program": ""}).error.code == "TOOL_TIMEOUT"


def test_executor_that_ends_before_it_reports_is_refused(fails, place):
    with listen(place, shared=False) as listening:

        def attend():
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 20)
                connection.sendall(encode_answer())

        thread = threading.Thread(target=attend)
        thread.start()
        error = fails("", executor=place)
        thread.join(60)
    assert error.code == "SANDBOX_REFUSED"
    assert f"the executor at {place} ended the connection" in error.message


def test_refusal_that_came_before_the_order_is_read(fails, place, monkeypatch):
    with listen(place, shared=False) as listening:
        connect = remote.Executor._connect

        def connect_late(executor, connection):
            connect(executor, connection)
            accepted, _ = listening.accept()
            with accepted:
                accepted.sendall(encode_answer("SANDBOX_REFUSED", "it serves user 1, not 2"))

        monkeypatch.setattr(remote.Executor, "_connect", connect_late)
        error = fails("", executor=place)
    assert error.message == f"the executor at {place}: it serves user 1, not 2"


# --- refusals of the executor -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (framed(b"\xff"), "it is not the JSON that was expected"),
        (SIZE.pack(1 << 40), f"it has more than {MOST} bytes"),
        (framed(b"{}"), "it is no order of a launcher"),
        (framed(json.dumps({**ORDER, "limits": {}}).encode()), "the limits are not positive whole numbers"),
        (
            framed(json.dumps({**ORDER, "limits": {**ORDER["limits"], "cpus": -1}}).encode()),
            "the limits are not positive whole numbers",
        ),
        (framed(json.dumps({**ORDER, "environment": {"path": "etc"}}).encode()), "the environment is no"),
        (
            framed(json.dumps({**ORDER, "environment": {"path": "/usr", "bwrap": "x"}}).encode()),
            "the environment is no",
        ),
        (framed(json.dumps({**ORDER, "degraded": "yes"}).encode()), "degraded is neither true nor false"),
    ],
)
def test_order_that_is_none_is_refused(shared_executor, order, why):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(shared_executor)
        connection.sendall(order)
        connection.settimeout(60)
        said = connection.recv(1 << 16)
    code, told = json.loads(said[SIZE.size :])["refused"]
    assert code == "SANDBOX_REFUSED"
    assert why in told


@pytest.fixture(scope="module")
def shared_executor():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, executing(f"{folder}/socket") as process:
        yield f"{folder}/socket"
        assert process.poll() is None


def test_user_that_is_not_expected_is_refused(fails, place):
    with executing(place, "--peer", "4242"):
        error = fails("", executor=place)
    assert error.code == "SANDBOX_REFUSED"
    assert f"it serves user 4242, not {os.getuid()}" in error.message


def test_folder_in_which_every_user_may_write_is_refused(place):
    Path(place).parent.chmod(0o777)
    with executing(place, ready=False) as process:
        assert process.wait(60) == 2
        assert "chmod o-w" in process.stderr.read()


def test_file_at_the_place_of_the_socket_is_kept(place):
    Path(place).write_text("mine")
    with executing(place, ready=False) as process:
        assert process.wait(60) == 2
        assert "it is no socket" in process.stderr.read()
    assert Path(place).read_text() == "mine"


def test_container_without_namespaces_gives_a_degraded_sandbox_only(call, fails, place):
    """Most containers allow no namespaces of users: then Landlock and the limits of the container are what there is."""
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    nobody = ["unshare", "--user", "--map-user=65534", "--map-group=65534", "--keep-caps", "sh", "-c", forbid, "sh"]
    with executing(place, before=nobody):
        refused = fails("", executor=place)
        limits = call("pass", executor=place, sandbox="degraded")["limits"]
    assert refused.code == "SANDBOX_REFUSED"
    assert limits["network"].startswith("degraded")
    assert limits["files"].startswith("landlock")
