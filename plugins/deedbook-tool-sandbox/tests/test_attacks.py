"""Attacks on the sandbox that have been successful elsewhere, and what one run could leave for the next."""

import os
import re
import signal
import sys
import textwrap
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deedbook import Branch, Failed, Limits

ROOT = Path(__file__).parents[3]


# --- files and mounts -------------------------------------------------------------------------------------------------


def test_mounts_alone_make_everything_read_only_but_the_folders_of_the_program(call):
    text = call("print(open('/proc/mounts').read())")["stdout"]
    mounts = {path: options.split(",") for _, path, _, options, *_ in map(str.split, text.strip().splitlines())}
    writable = {path for path, options in mounts.items() if "rw" in options}
    devices = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "pts", "shm")}
    assert {"/", "/usr", "/dev", "/data", "/etc/passwd", sys.prefix} & writable == set()
    assert writable == {"/workspace", "/tmp", "/proc"} | devices
    assert all("nosuid" in options for options in mounts.values())


def test_data_cannot_be_made_writable_again(call):
    said = call("""
        import ctypes, subprocess
        libc = ctypes.CDLL(None)
        for folder in (b"/data", b"/", b"/dev", b"/usr"):
            print(libc.mount(None, folder, None, 32, None), libc.umount2(folder, 2))
    """)["stdout"]
    assert said.split() == ["-1"] * 8


def test_links_in_the_outputs_lead_nowhere(call, lab):
    lab.write("secret.txt", "secret", system=False)
    outputs = call(
        f"""
        import os
        os.symlink("/etc/passwd", "link")
        os.symlink("/etc", "folder")
        os.symlink({str(lab.path)!r}, "outside")
        os.mkfifo("pipe")
        os.mkdir("list")
        open("real", "w").write("real")
        os.link("real", "hard")
        """,
        outputs=["link", "folder/shadow", "outside/secret.txt", "pipe", "list", "hard"],
    )["outputs"]
    assert outputs == {"hard": "real"}


def test_links_in_the_code_are_not_copied(call, lab, tmp_path):
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    call("pass")
    (lab.path / "src/link").symlink_to(tmp_path / "secret.txt")
    (lab.path / "src/folder").symlink_to(tmp_path)
    (lab.path / "src/loop").symlink_to(".")
    said = call("import os; print(sorted(os.listdir()))")["stdout"]
    assert said == "['deep', 'notes.txt']\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may read what others may not")
def test_environment_that_the_program_may_not_read_is_refused(fails, tmp_path):
    (tmp_path / "bin").mkdir(mode=0o700)
    tmp_path.chmod(0o700)
    error = fails("pass", environment={"path": str(tmp_path)})
    assert error.code == "SANDBOX_REFUSED"
    assert f"{tmp_path} cannot be read by user 65534; let others read it" in error.message


def test_environment_is_found_though_only_root_reaches_it_and_cannot_be_written(call):
    said = call("""
        import os, sys
        for path in (sys.prefix, sys.base_prefix, os.path.dirname(os.__file__)):
            try:
                open(path + "/taken", "w")
            except OSError as problem:
                print(problem.strerror)
    """)["stdout"]
    assert set(said.splitlines()) <= {"Read-only file system", "Permission denied"}
    assert len(said.splitlines()) == 3


@pytest.fixture
def folder_in_tmp():
    with TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_environment_may_stand_where_the_sandbox_has_a_folder_of_its_own(call, folder_in_tmp):
    folder_in_tmp.chmod(0o755)
    program = folder_in_tmp / "bin" / "hello"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hello; echo x > $0 || rm $0\n")
    program.chmod(0o755)
    result = call("", argv=["hello"], environment={"path": str(folder_in_tmp)}, statuses=[0, 1])
    assert result["stdout"] == "hello\n"
    assert result["status"] == 1
    assert program.exists()


def test_compiled_files_that_the_digest_leaves_out_are_not_used(call):
    from deedbook_tool_sandbox.bubblewrap import digest_of

    folder = Path(__file__).parent
    (folder / "bin").mkdir(exist_ok=True)
    try:
        said = call(
            "import sys; print(sys.pycache_prefix)",
            environment={"path": str(folder), "digest": digest_of(folder)},
            argv=["/usr/bin/env", "python3", "-"],
        )["stdout"]
    finally:
        (folder / "bin").rmdir()
    assert said == "/tmp/.pycache\n"


def test_limited_call_copies_only_what_it_may_read(lab, declare):
    """Also with a launcher that served a call without limits before."""
    declare(argv=["python3", "-"])
    lab.skill("greet", allows="it main", triggers="hello")
    program = "import os; print(sorted(n for f in ('.', '/data') for _, _, names in os.walk(f) for n in names))"
    said = []

    def main(args, run):
        def call(run):
            try:
                return run.call("it", {"program": program})["stdout"]
            except Failed as problem:
                return problem.code

        for limits in (None, Limits(reads=["src/deep/**", "data/**"]), Limits(reads=["data/**"]), None):
            said.extend(run.parallel([Branch("one", call, limits=limits)]))
        return "done"

    lab.flow("main", main)
    with lab.session("run") as session:
        answer = session.run("hello")
    whole = "['facts.txt', 'more.txt', 'notes.txt']\n"
    assert said == [whole, "['facts.txt', 'more.txt']\n", "PATH_REFUSED", whole], answer


# --- rights -----------------------------------------------------------------------------------------------------------


def test_program_cannot_use_other_processes_of_its_sandbox(call):
    """The first process and the one that keeps the namespaces have fewer limits by Landlock than the program."""
    said = call("""
        import ctypes, os
        libc = ctypes.CDLL(None)
        for pid in (1, 2):
            print(libc.ptrace(16, pid, 0, 0), end=" ")
            for name in ("mem", "environ", "fd/0", "cwd", "root"):
                try:
                    os.open(f"/proc/{pid}/{name}", os.O_RDWR if name == "mem" else os.O_RDONLY)
                    print(name)
                except OSError:
                    pass
        print([pid for pid in os.listdir("/proc") if pid.isdigit()])
    """)["stdout"]
    assert said == "-1 -1 ['1', '2', '3']\n"


def test_set_user_id_programs_give_no_rights(call):
    said = call("""
        import os, shutil, stat, subprocess
        found = [f"/usr/bin/{name}" for name in ("su", "passwd", "mount", "newgrp", "chsh")]
        found = [path for path in found if os.path.exists(path) and os.stat(path).st_mode & stat.S_ISUID]
        print(len(found) > 0)
        shutil.copy("/usr/bin/id", "own")
        os.chmod("own", 0o6755)
        print(subprocess.run(["./own", "-u"], capture_output=True, text=True).stdout.strip())
        print(subprocess.run(["su", "-c", "id -u"], input="", capture_output=True, text=True).stdout.strip())
        print(open("/proc/self/status").read().count("NoNewPrivs:\\t1"))
    """)["stdout"]
    assert said.splitlines() == ["True", "65534", "", "1"]


def test_user_namespaces_cannot_be_nested(call):
    said = call("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        print(open("/proc/sys/user/max_user_namespaces").read().strip())
        print([libc.unshare(flag) for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000)])
        stack = ctypes.create_string_buffer(65536)
        print(libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) < 0)
        try:
            open("/proc/sys/user/max_user_namespaces", "w").write("9")
        except OSError:
            print("refused")
    """)["stdout"]
    assert said.splitlines()[1:] == ["[-1, -1, -1, -1, -1, -1]", "True", "refused"]


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [1, 2])
def test_ten_gigabytes_of_output_are_cut(fails, stream):
    error = fails(f"import os\nfor _ in range(10 << 10): os.write({stream}, bytes(1 << 20))")
    assert (error.code, error.message) == (
        "OUTPUT_TOO_LARGE", "python3 wrote more than 1048576 bytes; it was killed, with all its processes",
    )  # fmt: skip


def test_ten_gigabytes_in_a_requested_file_are_refused(call):
    result = call(
        """
        import os
        with open("report.txt", "wb") as file:
            file.truncate(10 << 30)
        """,
        outputs=["report.txt"],
    )
    assert result["outputs"] == {}


def test_shared_memory_is_summed_where_no_group_limits_it(launch):
    program = """
        import mmap, os, time
        block = mmap.mmap(-1, 200 << 20)
        for at in range(0, len(block), 4096): block[at] = 1
        time.sleep(20)
    """
    assert launch(program, memory=64 << 20).ended == "memory"


def test_memory_that_cannot_be_summed_does_not_exist(launch):
    report = launch("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            os.memfd_create("hidden")
        except OSError as problem:
            print(problem.strerror)
        print(libc.shmget(0, 4096, 0o1600), os.strerror(ctypes.get_errno()))
    """)
    assert report.out == b"Function not implemented\n-1 Function not implemented\n"
    assert report.limits["memory"] == "polled"


def test_single_process_cannot_leap_over_a_limit_that_is_polled(launch):
    report = launch("bytearray(400 << 20)", memory=64 << 20)
    assert b"MemoryError" in report.err or report.ended == "memory"


WEAK = """
import sys; sys.path.append(sys.argv.pop(1))
import deedbook_tool_sandbox.system_calls as calls, os
calls._ARCHITECTURES.clear()
os.cpu_count = lambda: 64
from deedbook_tool_sandbox.launcher import main; main()
"""
"""The launcher on a machine whose system calls it cannot filter."""


def test_processors_that_the_program_can_take_back_are_refused(launch):
    report = launch("print('ran')", start=WEAK)
    assert (report.ended, report.out) == ("refused", b"")
    assert report.err == b"the number of processors cannot be limited here\n"


def test_processors_that_the_program_can_take_back_count_as_degraded(launch):
    report = launch("print('ran')", start=WEAK, degraded="yes")
    assert report.out == b"ran\n"
    assert report.limits["cpus"] == "degraded: affinity, which the program can change"


def test_environment_of_the_launcher_is_out_of_reach(launch, monkeypatch):
    """Bubblewrap's own option --clearenv would leave it readable in /proc/1/environ."""
    monkeypatch.setenv("API_KEY", "very secret")
    report = launch("""
        import os
        print(sorted(os.environ))
        for pid in os.listdir("/proc"):
            try:
                print(open(f"/proc/{pid}/environ").read() if pid.isdigit() else "")
            except OSError:
                pass
    """)
    assert b"PATH" in report.out
    assert b"secret" not in report.out


# --- one run after the other ------------------------------------------------------------------------------------------


def test_next_run_finds_nothing_of_the_last_one(lab, declare):
    declare(argv=["python3", "-"])
    with lab.session() as session:
        first = run(session, """
            import os, time
            for folder in ("/workspace", "/tmp", "/dev/shm"): open(folder + "/left", "w").write("x")
            if not os.fork():
                os.setsid()
                time.sleep(600)
        """)  # fmt: skip
        second = run(session, """
            import os
            print([path for path in ("/workspace/left", "/tmp/left", "/dev/shm/left") if os.path.exists(path)])
            print([pid for pid in os.listdir("/proc") if pid.isdigit()])
        """)  # fmt: skip
    assert first["status"] == 0
    assert second["stdout"] == "[]\n['1', '2', '3']\n"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="has the numbers of system calls of x86_64")
def test_next_run_has_no_keys_of_the_last_one(lab, declare):
    declare(argv=["python3", "-"])
    program = """
        import ctypes
        libc = ctypes.CDLL(None)
        print(libc.syscall(250, 10, -3, b"user", b"mark", 0) > 0)
        libc.syscall(248, b"user", b"mark", b"secret", 6, -3)
        print(libc.syscall(250, 10, -3, b"user", b"mark", 0) > 0)
    """
    with lab.session() as session:
        said = [run(session, program)["stdout"].split() for _ in range(2)]
    assert said[0][0] == said[1][0] == "False"


def test_launcher_is_kept_and_replaced_if_it_was_killed(lab, declare):
    declare(argv=["python3", "-"])
    with lab.session() as session:
        run(session, "pass")
        kept = launchers()
        run(session, "pass")
        assert launchers() == kept != set()
        for pid in kept:
            with suppress(ProcessLookupError):  # the one ends with the other
                os.kill(pid, signal.SIGKILL)
        assert run(session, "print('again')")["stdout"] == "again\n"
        assert launchers() & kept == set()


def test_program_that_kills_its_sandbox_gets_a_status(launch):
    """Without Landlock a program could kill the process that keeps the namespaces, and with it only itself."""
    report = launch("import os, time; os.kill(-1, 9); time.sleep(1)")
    assert report.ended == "exit"
    assert report.begun


def test_launcher_is_not_used_again_after_a_limit_was_passed(lab, declare):
    declare(argv=["python3", "-"], limits={"bytes": 1000})
    with lab.session() as session:
        run(session, "pass")
        kept = launchers()
        assert session.call("it", {"program": "print('x' * 5000)"}).error.code == "OUTPUT_TOO_LARGE"
        assert run(session, "print('again')")["stdout"] == "again\n"
        assert kept
        assert launchers() & kept == set()


def test_calls_at_the_same_time_have_sandboxes_of_their_own(lab, declare):
    declare(argv=["python3", "-"])
    said = {}
    program = """
        import os, time
        open("mine", "w").write("%d")
        time.sleep(0.3)
        print(open("mine").read(), len([pid for pid in os.listdir("/proc") if pid.isdigit()]))
    """
    with lab.session() as session:
        threads = [
            threading.Thread(target=lambda n=n: said.update({n: run(session, program % n)["stdout"]})) for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert said == {n: f"{n} 3\n" for n in range(3)}


def test_control_groups_are_removed_when_the_workspace_is_closed(lab, declare):
    declare(argv=["python3", "-"])
    with lab.session() as session:
        run(session, "pass")
        made = [group for pid in launchers() for group in groups_of(pid)]
    lab.close()
    assert [group for group in made if group.exists()] == []


def run(session, program):
    """Run a program; return the result."""
    result = session.call("it", {"program": textwrap.dedent(program)})
    assert hasattr(result, "value"), result
    return result.value


def launchers():
    """Return the launchers that this process uses: programs of its supervisor."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if b"deedbook_tool_sandbox.launcher" in (place / "cmdline").read_bytes() and _is_below(int(place.name)):
                found.add(int(place.name))
        except OSError:
            continue
    return found


def _is_below(pid):
    """Return whether this process started *pid*, or a process above it."""
    while pid > 1 and pid != os.getpid():
        pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return pid == os.getpid()


def groups_of(pid):
    """Yield the folders of the control groups made for the launcher *pid*."""
    # os.walk goes on where another test's group disappears meanwhile; glob does not
    for folder, _, _ in os.walk("/sys/fs/cgroup"):
        if os.path.basename(folder) == f"deedbook-sandbox-{pid}":
            yield Path(folder)


# --- where bubblewrap is missing --------------------------------------------------------------------------------------


def test_continuous_integration_fails_where_bubblewrap_is_missing(monkeypatch):
    """The attacks on the sandbox are never skipped."""
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    (code,) = re.findall(r"^\.venv/bin/python -c '(.*Bubblewrap.*)'", script, re.MULTILINE)
    exec(code, {})
    monkeypatch.setattr("deedbook_tool_sandbox.bubblewrap.which", lambda *_, **__: None)
    monkeypatch.setattr("deedbook_tool_sandbox.bubblewrap.find_spec", lambda _: None)
    with pytest.raises(Failed, match="bubblewrap is not installed"):
        exec(code, {})
