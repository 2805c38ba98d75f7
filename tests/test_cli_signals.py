"""Sessions that are interrupted, killed, closed afterwards, or written by two processes at once."""

import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from commandline import ROOT, Place, ended, environment, until

SLOW = """
    import time
    from pathlib import Path

    from deedbook import HandlerSpec


    class Plugin:
        spec = HandlerSpec(
            takes={"type": "object", "additionalProperties": False},
            gives={"type": "object"},
            effects="write",
        )

        def __init__(self, settings, host):
            pass

        def __call__(self, args, ctx):
            Path("begun").touch()
            while not Path("go").exists():
                time.sleep(0.02)
            return {}
"""
"""A tool that says when it has begun, and waits until it may go on."""
ASYNC = SLOW.replace("import time", "import asyncio").replace("def __call__", "async def __call__").replace(
    "time.sleep", "await asyncio.sleep"
)  # fmt: skip


@pytest.fixture(params=[SLOW, ASYNC], ids=["plain", "async"])
def slow(place: Place, request: pytest.FixtureRequest) -> Place:
    """Give a workspace with a slow tool, which waits in plain code or in a coroutine."""
    return with_slow_tool(place, request.param)


@pytest.fixture
def waiting(place: Place) -> Place:
    """Give a workspace with a slow tool."""
    return with_slow_tool(place, SLOW)


def with_slow_tool(place: Place, source: str) -> Place:
    place.offer("tools", "slow", source)
    place.system(
        "registry/low-level/slow.yaml",
        """\
        schema_version: v1
        id: slow
        summary: Wait.
        handler: {tool: slow}
        timeout_ms: 60000
        """,
    )
    place.system(
        "policies/baseline.yaml",
        """\
        schema_version: v1
        id: baseline
        kind: rules
        match: {kind: [tool, flow]}
        rules: [{match: {}, then: allow}]
        """,
    )
    return place


def begin(place: Place, *command: str, **popen: Any) -> "subprocess.Popen[bytes]":
    """Start *command*, else a call of the slow tool, and return the process once the tool has begun."""
    return _begun(place, place.start(*(command or ("call", "slow")), **popen))


def begin_fork(place: Place, *command: str) -> "subprocess.Popen[bytes]":
    """Do the same where the imports are done, for a process that is not killed."""
    return _begun(place, place.start_fork(*(command or ("call", "slow"))))


def _begun(place: Place, process: "subprocess.Popen[bytes]") -> "subprocess.Popen[bytes]":
    until(lambda: (place.path / "begun").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process


def states(place: Place) -> list[str]:
    listed = place.run("sessions", "--json", status=0).fits("output_sessions_v1")["sessions"]
    return [session["state"] for session in listed]


# --- at the start -----------------------------------------------------------------------------------------------------

BEGIN = "from deedbook.cli.command import main; main()"


def _told_while_importing(tmp_path: Path, name: str, **popen: Any) -> "subprocess.CompletedProcess[str]":
    """Begin the command with a library *name* during whose import Ctrl-C is pressed."""
    library = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('went on')\nraise SystemExit(5)\n"
    (tmp_path / f"{name}.py").write_text(library)
    env = environment(PYTHONPATH=str(tmp_path))
    return subprocess.run(
        [sys.executable, "-c", BEGIN], env=env, capture_output=True, text=True, timeout=60, check=False, **popen
    )


@pytest.mark.parametrize("name", ["click", "gettext"])
def test_interrupt_while_the_command_is_being_imported_is_one_line(tmp_path: Path, name: str):
    ran = _told_while_importing(tmp_path, name)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "error: interrupted\n")


def test_module_of_the_command_imports_only_what_cannot_be_interrupted():
    """Until `main` has begun, an interrupt prints a traceback."""
    script = "import os; before = {*sys.modules}; import deedbook.cli.command; print(*sorted({*sys.modules} - before))"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, sys.argv[1]); " + script,
                          str(ROOT / "core")], capture_output=True, text=True, check=True)  # fmt: skip
    assert ran.stdout == "deedbook deedbook.cli deedbook.cli.command\n"


AT_EXIT = """
import atexit, os, signal, sys
from deedbook.cli import program
atexit.register(lambda: [os.kill(os.getpid(), number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)])
sys.argv = ["deedbook", "--version"]
program.main()
"""


def test_interrupt_once_the_work_is_done_changes_nothing():
    ran = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("deedbook ")


def test_interrupt_that_the_parent_ignores_stays_ignored_at_the_start(tmp_path: Path):
    ran = _told_while_importing(tmp_path, "click", preexec_fn=_ignore_interrupt)
    assert (ran.returncode, ran.stdout) == (5, "went on\n")


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_command_begins_with_nothing_but_pythons_own_imported():
    script = (
        "import sys, deedbook.cli.command; print([name for name in sys.modules if name.partition('.')[0] not in known])"
    )
    known = "import sys; known = {*sys.stdlib_module_names, *sys.modules}; "
    ran = subprocess.run([sys.executable, "-c", known + script], capture_output=True, text=True, check=True)
    assert ran.stdout == "['deedbook', 'deedbook.cli', 'deedbook.cli.command']\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["deedbook"] == "deedbook.cli.command:main"


# --- told to stop -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_interrupted_call_is_recorded_as_cancelled_and_its_session_is_ended(slow: Place, number: signal.Signals):
    process = begin_fork(slow)
    process.send_signal(number)
    ran = ended(process)
    assert ran.status == 130
    assert "error: interrupted" in ran.err
    (session,) = slow.sessions()
    assert f"session {session}\n" in ran.err
    assert ran.out == ""
    assert slow.types()[-2:] == ["tool.error", "session.end"]
    (error,) = slow.payloads("tool.error")
    assert (error["code"], error["outcome"]) == ("CANCELLED", "cancelled")
    assert slow.payloads("session.end") == [{"ok": False, "reason": "interrupted"}]
    assert states(slow) == ["ended"]


def test_interrupted_run_is_suspended_and_can_be_given_up(waiting: Place):
    waiting.system(
        "skills/wait/SKILL.md",
        """\
        ---
        name: wait
        description: Waits.
        triggers: [wait]
        allowed-tools: [slow]
        version: 1
        schema_version: v1
        metadata:
          deedbook:
            rules:
              - pattern: '^wait$'
                steps: [{ability: slow, args: {}, description: Wait}]
                answer: done
        ---
        # Wait
        """,
    )
    process = begin_fork(waiting, "run", "wait")
    process.send_signal(signal.SIGINT)
    ran = ended(process)
    assert ran.status == 130
    types = waiting.types()
    assert types[-1] == "session.suspended"
    assert "tool.error" in types
    assert not {"context.halted", "context.failed", "flow.error"} & set(types)
    (session,) = waiting.sessions()
    assert f"the run is suspended; go on with: deedbook resume {session}" in ran.err
    waiting.run("sessions", "close", session, status=0)
    snapshot = waiting.run("replay", session, "--json", status=0).json
    assert (snapshot["closed"], snapshot["ok"], snapshot["unknown"]) == (True, False, 1)
    assert "context.halted" in waiting.types()


STUBBORN = """\
        try:
            print("in", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print("no", flush=True)
            time.sleep(60)
"""


def test_tool_that_holds_on_is_interrupted_by_the_second_signal(place: Place):
    """The first one is swallowed by the tool; nothing is lost by that."""
    source = dedent(SLOW)
    waits = source[source.index('        Path("begun")') : source.index("        return {}")]
    with_slow_tool(place, source.replace(waits, STUBBORN))
    process = place.start_fork("call", "slow")
    assert process.stderr
    try:
        for said in (b"in\n", b"no\n"):  # what a plugin prints goes to standard error
            assert process.stderr.readline() == said
            process.send_signal(signal.SIGINT)
    finally:
        ran = ended(process)
    assert ran.status == 130
    assert place.types()[-2:] == ["tool.error", "session.end"]


def test_signal_that_the_parent_ignores_stays_ignored(waiting: Place):
    process = begin(waiting, preexec_fn=_ignore_hangup)
    process.send_signal(signal.SIGHUP)
    (waiting.path / "go").touch()
    assert ended(process).status == 0


def _ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


# --- killed -----------------------------------------------------------------------------------------------------------


def test_killed_session_is_interrupted_and_can_be_closed_once(waiting: Place):
    process = begin(waiting)
    (session,) = waiting.sessions()
    assert states(waiting) == ["open"]
    locked = waiting.run("sessions", "close", session, status=1)
    assert "[LEDGER_LOCKED]" in locked.err
    process.kill()
    process.communicate()
    assert states(waiting) == ["interrupted"]
    closed = waiting.run("sessions", "close", session[:10], status=0)
    assert closed.err == f"session {session} is closed; 1 open call is unknown\n"
    assert waiting.types()[-2:] == ["tool.error", "session.end"]
    (error,) = waiting.payloads("tool.error")
    assert (error["code"], error["outcome"]) == ("OUTCOME_UNKNOWN", "unknown")
    assert states(waiting) == ["ended"]
    assert "[SESSION_ENDED]" in waiting.run("sessions", "close", session, status=1).err
    assert waiting.run("verify", status=0).out.endswith("all 2 sound\n")
    assert waiting.run("export", session, "--as", "seed-002", status=0).out


def test_killed_in_the_middle_of_a_line_the_torn_tail_is_kept_and_told(waiting: Place):
    process = begin(waiting)
    process.kill()
    process.communicate()
    path = waiting.ledger()
    with path.open("ab") as file:
        file.write(b'{"schema_version":"1.1","session_id":"tor')
    assert states(waiting) == ["interrupted"]
    assert "torn: 41 bytes" in waiting.run("verify", waiting.sessions()[0], status=4).out
    waiting.run("sessions", "close", waiting.sessions()[0], status=0)
    assert "ledger.recovered" in waiting.types()
    assert [kept.read_bytes() for kept in path.parent.glob(".torn-*")] == [b'{"schema_version":"1.1","session_id":"tor']
    waiting.run("verify", status=0)


def test_next_session_begins_as_if_nothing_had_happened(waiting: Place):
    process = begin(waiting)
    process.kill()
    process.communicate()
    assert waiting.run("run", "Say hello to Ada", status=0).out == "Hello, Ada!\n"
    assert sorted(states(waiting)) == ["ended", "interrupted"]


# --- two at once ------------------------------------------------------------------------------------------------------


def test_two_processes_in_one_workspace_have_a_ledger_each_and_share_the_third(waiting: Place):
    processes = [waiting.start_fork("run", f"Say hello to {name}") for name in ("Ada", "Bob", "Cleo", "Dora")]
    slow = begin_fork(waiting)
    assert sorted(ended(process).out for process in processes) == [
        f"Hello, {name}!\n" for name in ("Ada", "Bob", "Cleo", "Dora")
    ]
    (waiting.path / "go").touch()
    assert ended(slow).status == 0
    assert states(waiting) == ["ended"] * 5
    assert waiting.run("verify", status=0).out.endswith("all 6 sound\n")
    heads = [line for line in waiting.run("tree", "workspace", status=0).out.splitlines() if "ledger.session" in line]
    assert len(heads) == 10, "each session's beginning and end"


def test_first_two_processes_of_a_new_workspace_agree_on_its_ledger(place: Place):
    processes = [place.start_fork("call", "echo", "--args", '{"text":"hi"}') for _ in range(3)]
    assert [ended(process).status for process in processes] == [0, 0, 0]
    tree = place.run("tree", "workspace", status=0).out
    assert tree.count("ledger.created") == 1
    assert "roots: 1, orphans: 0" in tree
    assert place.run("verify", status=0).out.endswith("all 4 sound\n")
