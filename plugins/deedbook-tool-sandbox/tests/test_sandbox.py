"""What programs in a sandbox get, and what they cannot get although they try."""

import os
import socket
import sys
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from deedbook.format.errors import BindingError

# --- what it gets -----------------------------------------------------------------------------------------------------


def test_program_gets_copies_of_the_files_and_returns_what_it_printed(call, lab):
    result = call(
        """
        from pathlib import Path
        print(Path("notes.txt").read_text(), Path("deep/more.txt").read_text(), Path("/data/facts.txt").read_text())
        Path("notes.txt").write_text("changed")
        Path("report.txt").write_text("all is well")
        """,
        outputs=["report.txt", "absent.txt"],
    )
    assert result["stdout"] == "from outside\n more\n facts\n\n"
    assert result["outputs"] == {"report.txt": "all is well"}
    assert (lab.path / "src/notes.txt").read_text(encoding="utf-8") == "from outside\n"
    assert not (lab.path / "src/report.txt").exists()


def test_result_lists_the_limits_in_force(call):
    limits = call("pass")["limits"]
    assert limits["network"] == "namespace"
    assert limits["root"] == "read-only"
    assert limits["memory"] in ("cgroup", "polled")
    assert limits["processes"] in ("cgroup", "rlimit")
    assert limits["cpus"] in ("cgroup", "affinity")


def test_output_in_json_is_parsed(call):
    assert call("print('{\"tests\": 3}')", output="json")["value"] == {"tests": 3}


def test_status_that_is_not_expected_fails(fails):
    error = fails("import sys; sys.exit('no such test')")
    assert (error.code, error.message) == ("PROCESS_FAILED", "python3 ended with status 1: no such test")


def test_program_that_does_not_exist_is_named(fails):
    error = fails("", argv=["no-such-program"])
    assert error.code == "PROCESS_FAILED"
    assert "no-such-program was not started: No such file or directory" in error.message


def test_environment_is_its_own(call, monkeypatch):
    monkeypatch.setenv("API_KEY", "very secret")
    said = call(
        """
        import os
        print(dict(os.environ))
        for pid in (1, 2):
            try:
                print(open(f"/proc/{pid}/environ").read())
            except OSError:
                pass
        """,
        env={"MODE": "test"},
    )["stdout"]
    assert "MODE" in said
    assert "secret" not in said


def test_environment_with_another_digest_is_refused(lab, declare):
    declare(environment={"path": sys.prefix, "digest": "0" * 64})
    with pytest.raises(BindingError, match=r"the digest of .* is [0-9a-f]{64}, not 0000"):
        lab.session()


# --- what it cannot get -----------------------------------------------------------------------------------------------


def test_network_and_abstract_sockets_of_the_host_are_out_of_reach(call):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        name = f"\0deedbook-{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        port = server.getsockname()[1]
        said = call(f"""
            import socket
            for family, kind, address in [
                (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {port})),
                (socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80)),
                (socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53)),
                (socket.AF_UNIX, socket.SOCK_STREAM, {name!r}),
            ]:
                try:
                    made = socket.socket(family, kind); made.settimeout(2); made.connect(address); made.send(b"x")
                    print("reached", address)
                except OSError as problem:
                    print("refused")
        """)["stdout"]
    assert said == "refused\n" * 4


def test_files_of_the_host_are_not_there_and_nothing_else_can_be_written(call, lab, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    keys = str(Path.home() / ".ssh")
    said = call(f"""
        import os
        for path in ({str(secret)!r}, "/proc/1/root{secret}", "/etc/shadow", {keys!r}, "/home", "/var", "/sys"):
            print(path, os.path.exists(path))
        os.symlink({str(secret)!r}, "link")
        print("link", os.path.exists("link"))
        for path in ("/x", "/usr/x", "/data/x", "/data/facts.txt", "/dev/x", "/etc/passwd", "/proc/sys/kernel/panic"):
            try:
                open(path, "w").write("x"); print("wrote", path)
            except OSError:
                pass
        for path in ({str(lab.path)!r}, {sys.prefix!r} + "/bin/python3"):
            try:
                os.rename(path, "/workspace/taken"); print("moved", path)
            except OSError:
                pass
    """)["stdout"]
    assert [line for line in said.splitlines() if not line.endswith("False")] == []


def test_program_has_no_rights_that_it_could_use(call):
    said = call("""
        import ctypes, os, subprocess
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        print(status["Uid"].split(), int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"].strip())
        libc = ctypes.CDLL(None)
        print(libc.unshare(0x10000000), libc.unshare(0x20000), libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
        print(subprocess.run(["unshare", "-Ur", "true"], stderr=subprocess.PIPE).returncode != 0)
        print(libc.ptrace(16, 1, 0, 0), libc.ptrace(16, 2, 0, 0))
        for pid in (1, 2):
            try:
                os.kill(pid, 9); print("killed", pid)
            except OSError:
                pass
            for fd in range(10):
                try:
                    os.open(f"/proc/{pid}/fd/{fd}", os.O_WRONLY); print("opened", pid, fd)
                except OSError:
                    pass
        try:
            os.setuid(0); print("root")
        except OSError:
            pass
    """)["stdout"]
    assert said.splitlines() == [
        "['65534', '65534', '65534', '65534'] 0 0 1",
        "-1 -1 -1",
        "True",
        "-1 -1",
    ]


def test_no_process_of_a_sandbox_is_root_outside(lab, declare):
    mark = uuid4().hex
    declare(env={"MARK": mark}, limits={"seconds": 3})
    ended = []
    thread = threading.Thread(
        target=lambda: ended.append(lab.session().call("it", {"program": "import time; time.sleep(60)"}))
    )
    thread.start()
    until = time.monotonic() + 20
    while not (found := list(marked(mark))) and time.monotonic() < until:
        time.sleep(0.02)
    space = os.stat(f"/proc/{found[0]}/ns/pid").st_ino
    inside = [pid for pid in processes() if _namespace(pid) == space]
    statuses = [status(pid) for pid in inside]
    thread.join()
    assert len(inside) >= 3  # the first process, the one that keeps the namespaces, and the program
    nobody = ["65534"] * 4 if os.getuid() == 0 else [str(os.getuid())] * 4
    assert [each["Uid"].split() for each in statuses] == [nobody] * len(inside)
    assert {each["Groups"].strip() for each in statuses} == {""} or os.getuid()
    assert ended[0].error.code == "TOOL_TIMEOUT"


def processes():
    """Yield the id of every process of the machine."""
    for place in Path("/proc").glob("[0-9]*"):
        yield int(place.name)


def status(pid):
    """Return the lines of a process's status by name."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _namespace(pid):
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def marked(mark):
    """Yield each process with *mark* in its environment."""
    for pid in processes():
        try:
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                yield pid
        except OSError:
            continue


def test_fork_bomb_stays_below_its_limit_and_is_gone_afterwards(call):
    mark = uuid4().hex
    said = call(
        """
        import os, time
        made = 0
        try:
            while True:
                if not os.fork():
                    time.sleep(60); os._exit(0)
                made += 1
        except OSError:
            print(made)
        """,
        limits={"processes": 40},
        env={"MARK": mark},
    )["stdout"]
    assert 10 < int(said) <= 40
    assert not list(marked(mark))


def test_four_processes_together_do_not_pass_the_memory_limit(fails):
    error = fails(FOUR, limits={"memory_mb": 128, "seconds": 20})
    assert (error.code, error.message) == ("SANDBOX_LIMIT", "python3 used more than 128 MiB of memory; it was killed")


FOUR = """
import os, time
for _ in range(4):
    if not os.fork():
        block = bytearray(60 << 20)
        for at in range(0, len(block), 4096): block[at] = 1
        time.sleep(30)
        os._exit(0)
while True:
    try: os.wait()
    except ChildProcessError: break
"""


def test_files_in_memory_have_limits(call):
    said = call(
        """
        for path, most in (("/workspace/big", 8), ("/tmp/big", 4), ("/dev/shm/big", 80)):
            try:
                with open(path, "wb") as file:
                    for _ in range(most): file.write(bytes(1 << 20)); file.flush()
                print("wrote all", path)
            except OSError as problem:
                print(problem.errno)
        """,
        limits={"workspace_mb": 4, "tmp_mb": 2},
    )["stdout"]
    assert said.split() == ["28", "28", "28"]


def test_files_in_memory_count_as_memory(fails):
    error = fails(
        """
        import time
        with open("/workspace/big", "wb") as file:
            for _ in range(200): file.write(bytes(1 << 20))
        time.sleep(20)
        """,
        limits={"memory_mb": 64},
    )
    assert error.code == "SANDBOX_LIMIT", error


def test_endless_output_is_cut_and_the_program_killed(fails):
    error = fails("while True: print('x' * 10000)", limits={"bytes": 100_000})
    assert error.code == "OUTPUT_TOO_LARGE"


def test_program_that_hangs_is_killed_with_what_it_started(fails):
    mark = uuid4().hex
    error = fails(
        """
        import os, time, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not os.fork():
            os.setsid()
            if not os.fork(): time.sleep(600)
            os._exit(0)
        time.sleep(600)
        """,
        limits={"seconds": 1},
        env={"MARK": mark},
    )
    assert error.code == "TOOL_TIMEOUT"
    assert not list(marked(mark))


def test_lying_answer_is_no_report(call):
    """The descriptors of the process that watches the program cannot be opened by the program."""
    said = call("""
        import os
        print(sorted(os.listdir("/proc/self/fd"))[:3])
        for fd in range(3, 64):
            try:
                os.write(fd, b"+lies")
                print("wrote", fd)
            except OSError:
                pass
    """)
    assert "wrote" not in said["stdout"]
    assert said["status"] == 0


def test_folder_outside_the_roots_is_refused(fails, lab):
    assert fails("pass", code="../elsewhere").code == "PATH_REFUSED"


def test_code_that_is_too_large_is_refused_and_nothing_runs(fails, lab):
    lab.write("src/big.bin", "x" * (3 << 20), system=False)
    error = fails("print('ran')", limits={"workspace_mb": 2})
    assert (error.code, error.message) == ("ARGUMENT_REFUSED", "src: the files do not fit into /workspace")


# --- limits without control groups ------------------------------------------------------------------------------------


def test_memory_is_summed_where_no_group_limits_it(launch):
    report = launch(FOUR)
    assert (report.ended, report.limits["memory"]) == ("memory", "polled")


def test_files_in_memory_are_summed_too(launch):
    fill = "f = open('/workspace/x', 'wb')\nfor _ in range(60): f.write(bytes(1 << 20))\nimport time; time.sleep(20)"
    assert launch(fill, memory=32 << 20).ended == "memory"


def test_program_cannot_take_back_processors(launch):
    report = launch(
        """
        import os
        print(len(os.sched_getaffinity(0)))
        try:
            os.sched_setaffinity(0, range(64)); print("changed")
        except OSError as problem:
            print(problem.strerror)
        """
    )
    assert report.out.decode().split("\n")[:2] == ["1", "Operation not permitted"]
    assert report.limits["cpus"] == "affinity"


def test_processes_are_limited_without_a_group(launch):
    bomb = """
        import os, time
        made = 0
        try:
            while True:
                if not os.fork(): time.sleep(60); os._exit(0)
                made += 1
        except OSError:
            print(made)
    """
    report = launch(bomb)
    assert report.limits["processes"] == "rlimit"
    assert 10 < int(report.out) <= 40


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_user_without_rights_gets_the_same_sandbox(launch):
    report = launch(
        "import os, socket; print(os.getuid(), os.listdir('/')); socket.create_connection(('192.0.2.1', 1))", user=4711
    )
    assert report.ended == "exit"
    assert b"65534 [" in report.out
    assert b"OSError" in report.err or b"PermissionError" in report.err


# --- where it cannot be made ------------------------------------------------------------------------------------------


def test_missing_bubblewrap_is_one_clear_error(lab, declare, monkeypatch):
    monkeypatch.setattr("deedbook_tool_sandbox.bubblewrap.which", lambda *_, **__: None)
    monkeypatch.setattr("deedbook_tool_sandbox.bubblewrap.find_spec", lambda _: None)
    declare()
    with pytest.raises(BindingError, match=r"bubblewrap is not installed.*tool-sandbox\[bwrap\]"):
        lab.session()


def test_degraded_sandbox_is_used_only_where_asked_for_and_is_recorded(launch, tmp_path):
    (tmp_path / "secret").write_text("x", encoding="utf-8")
    report = launch(
        f"""
        import os, socket
        open("made", "w").write("x")
        for path in ({str(tmp_path)!r} + "/secret", "/etc/passwd", {str(tmp_path)!r}):
            try:
                print("read", os.listdir(path) if os.path.isdir(path) else open(path).read())
            except OSError:
                pass
        for path in ("/tmp/x", "../data/x"):
            try:
                open(path, "w"); print("wrote", path)
            except OSError:
                pass
        try:
            socket.create_connection(("127.0.0.1", 1))
        except OSError as problem:
            print(problem.strerror)
        """,
        bwrap="",
        degraded="yes",
    )
    assert report.out.decode() == "Permission denied\n", report.err
    assert report.limits["network"].startswith("degraded")
    assert not list(Path("/tmp").glob("deedbook-sandbox-*"))
