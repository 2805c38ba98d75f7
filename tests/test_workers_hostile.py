"""Programs that mean harm: whatever they do, the caller has an answer or a failure, and nothing of them is left.

Every program has a token in its arguments or its environment's; a look into /proc says whether anything with it runs.
"""

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deedbook.contract import Failed
from deedbook.programs import process
from deedbook.programs.supervisor import System
from deedbook.programs.workers import Workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="macOS promises less, and has no /proc to look into")

LONG = 60.0
SHORT = 0.5
"""Seconds that hostile programs get; nothing depends on how much of them they use."""


@pytest.fixture(name="workers")
def make_workers() -> Iterator[Workers]:
    with Workers() as workers:
        yield workers


@pytest.fixture(name="token")
def make_token() -> Iterator[str]:
    """Return what all processes of one test have in their command line; afterwards none may be left."""
    token = f"token-{secrets.token_hex(8)}"
    yield token
    left = processes(token)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def processes(token: str) -> list[int]:
    """Return the processes that have *token* in their command line, zombies not counted, for they have none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if token.encode() in line:
                found.append(int(entry.name))
    return found


def python(code: str, token: str, *arguments: str) -> list[str]:
    """Return the command of a small program with a token."""
    return [sys.executable, "-I", "-S", "-c", textwrap.dedent(code), token, *arguments]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def wait_for(done: Callable[[], object]) -> None:
    until = time.monotonic() + LONG
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def code_of(run: Callable[[], object]) -> str:
    """Return the code that *run* fails with, or ``ran``."""
    try:
        run()
    except Failed as problem:
        return problem.code
    return "ran"


DETACH = """
import os, signal, sys, time
def detach(seconds=1000):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(seconds)
        os._exit(0)
"""

HANGS = {
    "sleeps": "import time; time.sleep(1000)",
    "spins": "while True: pass",
    "ignores what can be ignored": """
        import signal, time
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except OSError: pass
        print("ready", flush=True)
        while True: time.sleep(1000)
    """,
    "blocks what can be blocked": """
        import signal, time
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
        while True: time.sleep(1000)
    """,
    "stops itself": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "closes its outputs and hangs": "import os, time; os.close(1); os.close(2); os.close(0); time.sleep(1000)",
    "leaves its session": "import os, time; os.fork() and time.sleep(1000); os.setsid(); time.sleep(1000)",
    "waits for a child that hangs": "import os, time; os.fork() and os.wait(); time.sleep(1000)",
    "trickles": "import time\nwhile True: print('.', flush=True); time.sleep(.01)",
    "reads nothing": "import time; time.sleep(1000)",
}


@pytest.mark.parametrize("name", HANGS)
def test_program_that_hangs_is_killed_with_its_tree(workers, token, name):
    assert (
        code_of(lambda: workers.run(python(HANGS[name], token), stdin=b"x" * (1 << 20), seconds=SHORT))
        == "TOOL_TIMEOUT"
    )
    assert processes(token) == []


@pytest.mark.parametrize("name", HANGS)
def test_worker_that_hangs_is_killed_with_its_tree(workers, token, name):
    worker = workers.keep(python(HANGS[name], token))
    assert code_of(lambda: worker.ask(b"x" * (1 << 20), SHORT)) in {"TOOL_TIMEOUT", "WORKER_BROKEN", "ran"}
    worker.close()
    assert processes(token) == []


LEAVES = {
    "a child that holds its outputs": "import os, time\nif os.fork() == 0: time.sleep(1000)\nprint('allow')",
    "a child in another session": DETACH + "detach(); print('allow')",
    "many of them": DETACH + "for _ in range(20): detach()\nprint('allow')",
    "a child that was stopped": """
        import os, signal, time
        child = os.fork()
        if child == 0: time.sleep(1000)
        os.kill(child, signal.SIGSTOP); print('allow')
    """,
    "a stopped child in another session": """
        import os, signal
        if os.fork() == 0:
            os.setsid(); os.kill(os.getpid(), signal.SIGSTOP)
        print('allow')
    """,
    "one that forks and ends, for ever": """
        import os, time
        if os.fork() == 0:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                if os.fork(): os._exit(0)
                os.setsid()
        print('allow')
    """,
    "one that ignores signals and forks": """
        import os, signal, time
        if os.fork() == 0:
            os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.fork(); time.sleep(1000)
        print('allow')
    """,
    "a grandchild of every child": DETACH
    + """
for _ in range(3):
    if os.fork() == 0:
        for _ in range(3):
            if os.fork() == 0: detach(); time.sleep(1000)
        time.sleep(1000)
print('allow')
""",
    "one that died as a zombie": "import os, time\nif os.fork() == 0: os._exit(0)\ntime.sleep(.1); print('allow')",
}


@pytest.mark.parametrize("name", LEAVES)
def test_answer_counts_when_nothing_is_left_that_the_program_started(workers, token, name):
    ran = workers.run(python(LEAVES[name], token), seconds=LONG)
    assert (ran.status, ran.out.strip()) == (0, b"allow")
    assert processes(token) == []


def test_program_that_is_killed_from_inside_leaves_nothing(workers, token):
    code = DETACH + "detach(); print('allow', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    ran = workers.run(python(code, token), seconds=LONG)
    assert (ran.status, ran.out) == (-signal.SIGKILL, b"allow\n")
    assert processes(token) == []


FLOODS = {
    "yes": "while True: print('y' * 1000)",
    "standard error": "import sys\nwhile True: sys.stderr.write('y' * 1000)",
    "both": "import sys\nwhile True: sys.stderr.write('y' * 1000); sys.stdout.write('n' * 1000)",
    "one line without end": "import sys\nwhile True: sys.stdout.write('y' * 1000)",
    "many at once": "import os\nfor _ in range(5): os.fork()\nwhile True: os.write(1, b'y' * 65536)",
}


@pytest.mark.parametrize("name", FLOODS)
def test_flood_is_killed_at_once_and_not_held(workers, token, name):
    before = peak()
    assert code_of(lambda: workers.run(python(FLOODS[name], token), seconds=LONG)) == "OUTPUT_TOO_LARGE"
    assert processes(token) == []
    assert peak() - before < 32 << 20


@pytest.mark.parametrize("name", FLOODS)
def test_flood_in_answer_to_a_question_is_killed(workers, token, name):
    worker = workers.keep(python(FLOODS[name], token))
    assert code_of(lambda: worker.ask(b"hi", LONG)) in {"OUTPUT_TOO_LARGE", "WORKER_BROKEN"}
    assert processes(token) == []


def peak() -> int:
    """Return the most memory that this process ever held, in bytes."""
    said = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in said.splitlines() if line.startswith("VmHWM"))) * 1024


@pytest.mark.parametrize("sessions", [False, True])
def test_fork_bomb_is_killed_to_the_last_process(workers, token, sessions):
    """Bounded, so that a kernel that fails this test does not take the machine with it: 1,500 forks in all."""
    code = f"""
        import os, time
        counter = os.open('/tmp', os.O_TMPFILE | os.O_RDWR)
        while os.write(counter, b'.') and os.fstat(counter).st_size < 1500:
            if os.fork() == 0 and {sessions}: os.setsid()
            if os.fstat(counter).st_size > 200: time.sleep(.005)
        time.sleep(1000)
    """
    assert code_of(lambda: workers.run(python(code, token), seconds=SHORT)) == "TOOL_TIMEOUT"
    assert processes(token) == []


# --- the processes that watch -----------------------------------------------------------------------------------------

needs_landlock = pytest.mark.skipif(not System().can_confine(), reason="Landlock cannot scope signals here")

ABOVE = """
import os, signal, sys, time
def above(pid):
    return int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])
supervisor = os.getppid()
forker = above(supervisor)
kernel = above(forker)
def refused(pid, number):
    try: os.kill(pid, number)
    except PermissionError: return True
"""


def without_landlock(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the supervisors of this process find a kernel that is too old."""
    place = folder / "supervisor.py"
    place.write_text(
        process.SUPERVISOR.read_text().replace("_LANDLOCK_SCOPES: Final = 6", "_LANDLOCK_SCOPES: Final = 999")
    )
    patch.setattr(process, "SUPERVISOR", place)


@pytest.fixture(name="open_workers")
def make_open_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workers]:
    """Return workers whose programs may signal whom they like."""
    without_landlock(monkeypatch, tmp_path)
    with Workers() as workers:
        yield workers


@needs_landlock
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_program_cannot_signal_who_watches_it(workers, token, number):
    code = ABOVE + f"print([refused(pid, {int(number)}) for pid in (supervisor, forker, kernel)])"
    assert workers.run(python(code, token), seconds=LONG).out == b"[True, True, True]\n"


@needs_landlock
def test_program_may_signal_what_it_started(workers, token):
    code = "import os, time\nchild = os.fork()\nif not child: time.sleep(1000)\nos.kill(child, 9); print(os.wait()[1])"
    assert workers.run(python(code, token), seconds=LONG).out == b"9\n"


ATTACKS = {
    "kills its supervisor": "os.kill(supervisor, 9)",
    "stops its supervisor": "os.kill(supervisor, signal.SIGSTOP)",
    "kills its supervisor twice": "os.kill(supervisor, 9); os.kill(supervisor, 9)",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_program_that_attacks_its_supervisor_has_failed_and_leaves_nothing(open_workers, token, name):
    code = ABOVE + DETACH + f"detach(); print('allow', flush=True)\n{ATTACKS[name]}\ntime.sleep(1000)"
    assert code_of(lambda: open_workers.run(python(code, token), seconds=LONG)) == "WORKER_BROKEN"
    assert processes(token) == []
    assert open_workers.run(["echo"], seconds=LONG).out == b"\n"


@pytest.mark.parametrize("name", ATTACKS)
def test_child_that_attacks_the_supervisor_fails_the_program(open_workers, token, name):
    code = ABOVE + f"if os.fork() == 0:\n    os.setsid()\n    {ATTACKS[name]}\ntime.sleep(1000)"
    assert code_of(lambda: open_workers.run(python(code, token), seconds=LONG)) == "WORKER_BROKEN"
    assert processes(token) == []


def test_supervisor_ignores_signals_that_can_be(open_workers, token):
    code = ABOVE + "for number in (1, 2, 3, 15): os.kill(supervisor, number), os.kill(forker, number)\nprint('hi')"
    assert open_workers.run(python(code, token), seconds=LONG).out == b"hi\n"


@pytest.mark.parametrize("order", ["forker, supervisor", "supervisor, forker"])
def test_program_that_kills_both_who_watch_it_has_failed_and_dies_with_its_group(open_workers, token, order):
    code = ABOVE + f"os.fork() or time.sleep(1000)\nprint('allow', flush=True)\nfor pid in ({order}): os.kill(pid, 9)\n"
    program = python(code + "time.sleep(1000)", token)
    assert code_of(lambda: open_workers.run(program, seconds=LONG)) == "WORKER_BROKEN"
    wait_for(lambda: processes(token) == [])  # their reaper is the system's
    assert open_workers.run(["echo"], seconds=LONG).out == b"\n"


def test_programs_go_on_when_the_forker_is_killed(open_workers, token):
    code = ABOVE + "for line in sys.stdin: print(os.getppid() == supervisor, flush=True)"
    worker = open_workers.keep(python(code, token))
    assert worker.ask(b"hi", LONG) == b"True"
    killer = ABOVE + "os.kill(forker, 9); print('hi')"
    assert open_workers.run(python(killer, token), seconds=LONG).out == b"hi\n"
    assert worker.ask(b"hi", LONG) == b"True"
    assert open_workers.run(["echo"], seconds=LONG).out == b"\n"
    worker.close()
    assert processes(token) == []


def test_stopped_forker_is_replaced(open_workers, token, monkeypatch):
    monkeypatch.setattr("deedbook.programs.workers.GRACE", SHORT)
    open_workers.run(python(ABOVE + "os.kill(forker, signal.SIGSTOP)", token), seconds=LONG)
    assert code_of(lambda: open_workers.run(["echo"], seconds=SHORT)) == "TOOL_TIMEOUT"
    assert open_workers.run(["echo"], seconds=LONG).out == b"\n"


# --- the kernel dies --------------------------------------------------------------------------------------------------

KERNEL = """
import sys, threading
from deedbook.programs.workers import Workers
workers = Workers()
code, token = sys.argv[1:]
program = [sys.executable, "-I", "-S", "-c", code, token]
threading.Thread(target=workers.run, args=(program,), kwargs={"seconds": 1000}, daemon=True).start()
worker = workers.keep(program)
print(worker.ask(b"hi", 1000).decode(), flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_the_kernel_dies(token, number):
    code = DETACH + "detach(); print('hello', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", KERNEL, code, token], stdout=subprocess.PIPE) as kernel:
        assert kernel.stdout
        assert kernel.stdout.readline() == b"hello\n"
        wait_for(lambda: len(processes(token)) == 5)  # the kernel's own arguments, and twice a program and what it left
        watchers = below(kernel.pid)
        kernel.send_signal(number)
    wait_for(lambda: not processes(token))
    wait_for(lambda: not any(runs(pid) for pid in watchers))


def runs(pid: int) -> bool:
    """Say whether a process is more than a zombie."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def below(parent: int) -> list[int]:
    """Return the processes below *parent*."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                above = parent_of(int(entry.name))
            except OSError:
                continue
            if above == parent:
                found += [int(entry.name), *below(int(entry.name))]
    return found


def test_copy_of_the_kernel_does_not_keep_programs_alive(token):
    """A process that the kernel forked holds its sockets, too; the kernel's death is noticed all the same."""
    forks = KERNEL.replace("threading.Event().wait()", "import os, time\nos.fork() or time.sleep(20)\ntime.sleep(1000)")
    code = "import time; print('hello', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", forks, code, token], stdout=subprocess.PIPE) as kernel:
        assert kernel.stdout
        assert kernel.stdout.readline() == b"hello\n"
        wait_for(lambda: len(processes(token)) == 4)
        (copy,) = [pid for pid in processes(token) if parent_of(pid) == kernel.pid]
        kernel.kill()
    wait_for(lambda: processes(token) == [copy])
    os.kill(copy, signal.SIGKILL)
    wait_for(lambda: not processes(token))


# --- secrets ----------------------------------------------------------------------------------------------------------

PRY = """
import os, sys
def pry(pid):
    try:
        return b'hunter2' in open(f'/proc/{pid}/environ', 'rb').read()
    except PermissionError:
        return 'refused'
print(os.environ.get('KEY'), pry('self'), pry(sys.argv[2]))
"""
HOLDER = """
import os, sys
from pathlib import Path
from deedbook.programs import process as programs, supervisor
from deedbook.programs.workers import Workers
pry, token, private, other = sys.argv[1:]
if other:
    supervisor._LANDLOCK_SCOPES, programs.SUPERVISOR = 999, Path(other)
with Workers(private=private == "private") as workers:
    def look(pid):
        program = [sys.executable, "-I", "-S", "-c", pry, token, str(pid)]
        print(workers.run(program, seconds=60).out.decode().strip(), end=";")
    look(os.getpid())
    code = "import os\\nwhile input(): print(os.getpid(), flush=True)"
    holder = workers.keep([sys.executable, "-I", "-S", "-c", code, token], env={"KEY": "hunter2"})
    look(int(holder.ask(b"who", 60)))
"""
CAPABILITIES = (19, 21, 38)
"""CAP_SYS_PTRACE, CAP_SYS_ADMIN and CAP_PERFMON: with any of them root reads what it likes."""


def pried(token: str, private: str, supervisor: str) -> str:
    """Return what a program finds of a secret: in its own environment, in the kernel's, in another program's."""

    def become_plain() -> None:
        for number in CAPABILITIES:
            ctypes.CDLL(None).prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP; others than root have none of them

    ran = subprocess.run(
        [sys.executable, "-c", HOLDER, PRY, token, private, supervisor],
        env={**os.environ, "KEY": "hunter2"},
        preexec_fn=become_plain,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


@needs_landlock
def test_program_sees_no_secret_of_the_kernel_nor_of_another_program(token):
    assert pried(token, "", "") == "None False refused;None False refused;"


@pytest.mark.parametrize(("private", "found"), [("private", "refused"), ("", "True")])
def test_kernel_with_secrets_hides_them_where_landlock_does_not(token, tmp_path, monkeypatch, private, found):
    """Without either they are found: that shows what the rest of this test is worth. Those of other programs are."""
    without_landlock(monkeypatch, tmp_path)
    assert pried(token, private, str(process.SUPERVISOR)) == f"None False {found};None False True;"
