"""Programs in processes of their own: what they are given, what comes back, and how failures are said."""

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deedbook.contract import Failed, HandlerSpec, ProgramResult
from deedbook.format.errors import Ok
from deedbook.programs.workers import Workers

LONG = 60.0
"""Seconds that nothing here takes, however busy the machine is."""
ANYTHING = {"type": "object"}
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(name="workers")
def make_workers() -> Iterator[Workers]:
    with Workers() as workers:
        yield workers


def python(code: str, *arguments: str) -> list[str]:
    """Return the command of a small program."""
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


def failed(code: str, match: str | None = None) -> Any:
    return pytest.raises(Failed, match=match, check=lambda problem: problem.code == code)


def wait_for(done: Callable[[], object]) -> None:
    """Wait until *done*; that it never is fails."""
    until = time.monotonic() + LONG
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Say whether a process that is not our child is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


ECHO = "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)"


# --- run ------------------------------------------------------------------------------------------------------------


def test_run_returns_status_and_both_outputs(workers):
    code = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('hm'); sys.exit(3)"
    assert workers.run(python(code), stdin=b"abc", seconds=LONG) == ProgramResult(3, b"ABC", b"hm")


def test_run_returns_minus_the_signal_that_ended_the_program(workers):
    assert workers.run(python("import os; os.abort()"), seconds=LONG).status == -signal.SIGABRT


def test_run_finds_names_on_the_fixed_path_and_no_shell_reads_arguments(workers):
    ran = workers.run(["echo", "$HOME", "`id`", ";", "*"], seconds=LONG)
    assert ran.out == b"$HOME `id` ; *\n"


def test_run_gives_an_emptied_environment_and_what_the_caller_gives(workers, monkeypatch):
    monkeypatch.setenv("DEEDBOOK_TEST_KEY", "hunter2")
    ran = workers.run(["env"], env={"A": "1", "HOME": "/tmp"}, seconds=LONG)
    assert sorted(ran.out.decode().splitlines()) == [
        "A=1",
        "HOME=/tmp",
        "LANG=C.UTF-8",
        "PATH=/usr/local/bin:/usr/bin:/bin",
    ]


@LINUX
def test_run_inherits_no_descriptor_but_the_three(workers):
    with Path(os.devnull).open("rb") as ours:
        os.set_inheritable(ours.fileno(), True)
        ran = workers.run(python("import os; print(sorted(os.listdir('/proc/self/fd')))"), seconds=LONG)
    assert ran.out == b"['0', '1', '2', '3']\n"  # 3 is the folder that is being listed


def test_run_starts_a_session_without_terminal_and_core_dumps(workers):
    code = "import os, resource; print(os.getsid(0) == os.getpid(), resource.getrlimit(resource.RLIMIT_CORE)[0] <= 1)"
    assert workers.run(python(code), seconds=LONG).out == b"True True\n"


def test_run_restores_signals_that_python_ignores(workers):
    code = "import signal; print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.pthread_sigmask(0, []))"
    assert workers.run(python(code), seconds=LONG).out == b"True set()\n"
    ran = workers.run(["sh", "-c", "yes | head -n 1"], seconds=LONG)
    assert ran == ProgramResult(0, b"y\n", b"")  # without SIGPIPE, `yes` complains


def test_run_works_in_the_folder_given_by_path_or_descriptor(workers, tmp_path):
    assert workers.run(["pwd"], cwd=tmp_path, seconds=LONG).out.decode().strip() == str(tmp_path.resolve())
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert workers.run(["pwd"], cwd=fd, seconds=LONG).out.decode().strip() == str(tmp_path.resolve())
    finally:
        os.close(fd)
    assert workers.run(["pwd"], seconds=LONG).out == b"/\n"


def test_run_passes_a_mebibyte_through_a_program_that_answers_as_it_reads(workers):
    data = os.urandom(1 << 20)
    assert workers.run(["cat"], stdin=data, seconds=LONG).out == data


def test_run_does_not_wait_for_a_program_to_read_its_input(workers):
    assert workers.run(["true"], stdin=b"x" * (1 << 20), seconds=LONG) == ProgramResult(0, b"", b"")


def test_run_accepts_exactly_the_limit_and_not_one_byte_more(workers):
    code = "import sys; sys.stdout.write('x' * 1000); sys.stderr.write('x' * 1000)"
    assert len(workers.run(python(code), seconds=LONG, limit=1000).err) == 1000
    with failed("OUTPUT_TOO_LARGE", match="more than 999 bytes"):
        workers.run(python(code), seconds=LONG, limit=999)


def test_run_may_wait_without_end(workers):
    assert workers.run(["echo"], seconds=float("inf")).out == b"\n"


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_run_without_time_is_late(workers, seconds):
    with failed("TOOL_TIMEOUT"):
        workers.run(["sleep", "60"], seconds=seconds)


# --- what is not started --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["no-such-program-at-all"], "No such file"),
        (["/no/such/program"], "No such file"),
        (["/etc/passwd"], "Permission denied"),
        (["/etc"], "Permission denied"),
        (["./here"], "neither an absolute path"),
        (["here/program"], "neither an absolute path"),
        ([""], "neither an absolute path"),
        ([], "list of strings"),
        ("echo hi", "list of strings"),
        (["echo", 1], "list of strings"),
        (["echo", "a\0b"], "NUL"),
        (["echo", "\ud800"], "UTF-8"),
        (["echo", "x" * (1 << 22)], "Argument list too long"),
    ],
)
def test_run_says_what_cannot_be_started(workers, argv, why):
    with failed("NOT_STARTED", match=why):
        workers.run(argv, seconds=LONG)


def test_run_refuses_a_file_that_is_no_program(workers, tmp_path):
    place = tmp_path / "script"
    place.write_text("echo no shell reads this\n")
    place.chmod(0o755)
    with failed("NOT_STARTED", match="Exec format error"):
        workers.run([str(place)], seconds=LONG)


@pytest.mark.parametrize("env", [{"A=B": "1"}, {"": "1"}, {"A": 1}, {"A": "\0"}, {"PATH": "."}, {"PATH": "/bin:"}])
def test_run_refuses_an_environment_that_is_none(workers, env):
    with failed("NOT_STARTED"):
        workers.run(["echo"], env=env, seconds=LONG)


def test_run_looks_for_the_program_where_the_caller_says(workers, tmp_path):
    place = tmp_path / "tool"
    place.write_text("#!/bin/sh\necho found\n")
    place.chmod(0o755)
    assert workers.run(["tool"], env={"PATH": f"{tmp_path}:/bin"}, seconds=LONG).out == b"found\n"


def test_run_refuses_a_working_directory_that_is_none(workers, tmp_path):
    (tmp_path / "file").touch()
    for cwd in (tmp_path / "missing", tmp_path / "file", "nul\0"):
        with failed("NOT_STARTED"):
            workers.run(["pwd"], cwd=cwd, seconds=LONG)


# --- keep -----------------------------------------------------------------------------------------------------------


def test_worker_answers_many_lines_from_one_process(workers):
    code = "import os, sys\nfor line in sys.stdin: print(os.getpid(), line.strip(), flush=True)"
    worker = workers.keep(python(code))
    answers = [worker.ask(b"%d" % number, LONG).split() for number in range(5)]
    assert [said for _, said in answers] == [b"%d" % number for number in range(5)]
    assert len({pid for pid, _ in answers}) == 1


def test_worker_starts_nothing_until_asked(workers, tmp_path):
    worker = workers.keep(["sh", "-c", f"touch {tmp_path}/began; cat"])
    assert not (tmp_path / "began").exists()
    assert worker.ask(b"hi", LONG) == b"hi"
    assert (tmp_path / "began").exists()


def test_worker_passes_lines_longer_than_a_pipe(workers):
    line = b"x" * 500_000
    assert workers.keep(["cat"]).ask(line, LONG) == line


def test_worker_that_ends_between_questions_is_begun_anew(workers):
    worker = workers.keep(python("import os; input(); print(os.getpid())"))
    seen = set()
    for _ in range(3):
        pid = int(worker.ask(b"a", LONG))
        seen.add(pid)
        wait_for(lambda: not alive(pid))  # noqa: B023 - called at once
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("input(); print('half', end='', flush=True)", "half a line"),
        ("input(); raise SystemExit(4)", r"before it answered \(status 4\)"),
        ("input(); print('one\\ntwo', flush=True); input()", "more than one line"),
        ("import os, time; input(); os.close(1); time.sleep(1000)", "before it answered"),
        ("input(); 1/0", "it said: .*ZeroDivisionError"),
    ],
)
def test_worker_that_breaks_the_protocol_fails_and_is_begun_anew(workers, tmp_path, code, why):
    again = (
        f"import os\nif os.path.exists('{tmp_path}/x'):\n    print(input())\nelse:\n    open('{tmp_path}/x', 'w')\n    "
    )
    worker = workers.keep(python(again + code))
    with failed("WORKER_BROKEN", match=f"(?s){why}"):
        worker.ask(b"hi", LONG)
    assert worker.ask(b"hello", LONG) == b"hello"


def test_worker_that_answers_twice_later_fails_at_the_next_question(workers, tmp_path):
    code = f"import os, time\nprint(input(), flush=True)\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(.01)\n"
    worker = workers.keep(python(code + f"print('allow', flush=True); open('{tmp_path}/said', 'w'); input()"))
    assert worker.ask(b"hi", LONG) == b"hi"
    (tmp_path / "go").touch()
    wait_for((tmp_path / "said").exists)
    with failed("WORKER_BROKEN", match="more than one line"):
        worker.ask(b"hello", LONG)


def test_worker_is_limited_in_what_it_answers_to_each_question(workers):
    worker = workers.keep(python("import sys\nfor line in sys.stdin: print('x' * int(line), flush=True)"), limit=1000)
    assert [len(worker.ask(b"900", LONG)) for _ in range(3)] == [900, 900, 900]
    with failed("OUTPUT_TOO_LARGE"):
        worker.ask(b"1000", LONG)
    assert len(worker.ask(b"5", LONG)) == 5


def test_worker_takes_one_question_at_a_time_from_many_threads(workers):
    worker = workers.keep(python(ECHO))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: worker.ask(b"%d" % number, LONG), range(64)))
    assert answers == [b"got %d" % number for number in range(64)]


def test_worker_that_is_busy_is_late_for_others_and_goes_on(workers, tmp_path):
    code = f"import os, sys, time\nfor line in sys.stdin:\n    open('{tmp_path}/asked', 'w')\n"
    wait = f"    while line == 'wait\\n' and not os.path.exists('{tmp_path}/go'): time.sleep(.01)\n"
    worker = workers.keep(python(code + wait + "    print('done', flush=True)"))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(worker.ask, b"wait", LONG)
        wait_for((tmp_path / "asked").exists)
        with failed("TOOL_TIMEOUT", match="busy"):
            worker.ask(b"hi", 0.1)
        (tmp_path / "go").touch()
        assert first.result() == b"done"


@pytest.mark.parametrize("line", [b"a\n", b"a\nb", b"\n"])
def test_question_is_one_line(workers, line):
    with pytest.raises(ValueError, match="one line"):
        workers.keep(["cat"]).ask(line, LONG)


def test_worker_that_cannot_be_started_says_so_with_every_question(workers):
    worker = workers.keep(["no-such-program-at-all"])
    for _ in range(2):
        with failed("NOT_STARTED", match="No such file"):
            worker.ask(b"hi", LONG)


def test_worker_late_once_answers_the_next_question(workers):
    worker = workers.keep(
        python("import sys, time\nfor line in sys.stdin: time.sleep(float(line)); print(1, flush=True)")
    )
    with failed("TOOL_TIMEOUT"):
        worker.ask(b"1000", 0.5)
    assert worker.ask(b"0", LONG) == b"1"


# --- threads and closing --------------------------------------------------------------------------------------------


def test_programs_run_side_by_side_from_many_threads(workers, tmp_path):
    """Each waits for all others: one after the other they would never end."""
    code = f"import os, sys, time\nopen('{tmp_path}/' + sys.argv[1], 'w')\n"
    wait = f"while len(os.listdir('{tmp_path}')) < 6: time.sleep(.01)\nprint(sys.argv[1])"
    with ThreadPoolExecutor(6) as pool:
        ran = pool.map(lambda number: workers.run(python(code + wait, str(number)), seconds=LONG).out, range(6))
        assert [int(out) for out in ran] == list(range(6))


def test_close_ends_what_other_threads_wait_for(workers, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        program = ["sh", "-c", f"touch {tmp_path}/$0; exec sleep 1000"]
        waiting = [
            pool.submit(workers.run, [*program, "a"], seconds=LONG),
            pool.submit(workers.keep([*program, "b"]).ask, b"hi", LONG),
        ]
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        workers.close()
        for each in waiting:
            with failed("WORKER_BROKEN", match="kernel was closed"):
                each.result()


def test_closed_workers_start_nothing(workers):
    worker = workers.keep(["cat"])
    worker.ask(b"hi", LONG)
    workers.close()
    workers.close()
    with failed("NOT_STARTED", match="closed"):
        workers.run(["echo"], seconds=LONG)
    with failed("NOT_STARTED", match="closed"):
        worker.ask(b"hi", LONG)


def test_workers_keep_no_descriptor_open(workers):
    """Neither of programs that ended, nor of those that failed, nor of those that could not be started."""
    workers.run(["true"], seconds=LONG)
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        workers.run(["true"], stdin=b"x" * 100_000, seconds=LONG)
        with failed("TOOL_TIMEOUT"):
            workers.run(["sleep", "1000"], seconds=0.05)
        with failed("NOT_STARTED"):
            workers.run(["no-such-program-at-all"], seconds=LONG)
        worker = workers.keep(["cat"])
        worker.ask(b"hi", LONG)
        worker.close()
    assert len(os.listdir("/dev/fd")) == before


@contextlib.contextmanager
def one_descriptor_left():
    """Every descriptor that may be opened but one is taken, also in the gaps between those in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 8, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def test_run_says_when_no_descriptor_is_left(workers):
    workers.run(["true"], seconds=LONG)
    with one_descriptor_left(), failed("NOT_STARTED", match="Too many open files"):
        workers.run(["true"], seconds=LONG)
    assert workers.run(["echo"], seconds=LONG).out == b"\n"


def test_copy_of_the_process_begins_workers_of_its_own(workers):
    """It must neither speak for its original nor end what that one runs."""
    worker = workers.keep(python(ECHO))
    assert worker.ask(b"1", LONG) == b"got 1"
    copy = os.fork()
    if not copy:
        good = False
        try:
            good = workers.run(["echo", "hi"], seconds=LONG).out == b"hi\n"
        finally:
            os._exit(0 if good else 1)
    assert os.waitpid(copy, 0)[1] == 0
    assert worker.ask(b"2", LONG) == b"got 2"


# --- through the kernel ---------------------------------------------------------------------------------------------


class Program:
    """A tool that runs what it is told to."""

    spec = HandlerSpec(effects="read", takes=ANYTHING, gives=ANYTHING)

    def __init__(self, settings, host):
        self.run = host.run

    def __call__(self, args, ctx):
        ran = self.run(
            args["argv"], env=args.get("env", {}), cwd=args.get("cwd", ""), seconds=args.get("seconds", LONG)
        )
        return {"status": ran.status, "out": ran.out.decode()}


@pytest.fixture(name="session")
def make_session(lab):
    lab.offer("tool", "program", Program)
    lab.settings(abilities={"run": {"summary": "Runs.", "handler": {"tool": "program"}}})
    return lab.session()


def test_plugin_runs_a_program_in_the_workspace_through_the_door(lab, session):
    made = session.call("run", {"argv": ["sh", "-c", "pwd; exit 3"]})
    assert made == Ok({"status": 3, "out": f"{lab.path.resolve()}\n"})


def test_plugin_that_does_not_catch_the_failure_has_it_recorded(lab, session):
    made = session.call("run", {"argv": ["sleep", "1000"], "seconds": 0.2})
    assert (made.error.code, lab.payload("tool.error")["code"]) == ("TOOL_TIMEOUT", "TOOL_TIMEOUT")
    assert session.call("run", {"argv": ["no-such-program-at-all"]}).error.code == "NOT_STARTED"
    assert session.call("run", {"argv": ["pwd"], "cwd": "../.."}).error.code == "PATH_REFUSED"


def test_kernel_that_closes_leaves_no_program(lab):
    kernel = lab.kernel()
    worker = kernel.programs().keep(["sh", "-c", "sleep 1000 & echo $!; cat > /dev/null"])
    child = int(worker.ask(b"hi", LONG))
    assert alive(child)
    kernel.close()
    assert not alive(child)
