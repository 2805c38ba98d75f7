"""What a terminal shows and a pipe does not; and streams that are closed, full, deaf, or speak another alphabet."""

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import forked
import pytest
from commandline import COMMAND, SECONDS, Place, ask, ended, environment, play

from deedbook import Ok
from deedbook.cli.progress import show_delta

ESCAPE = "\x1b["


def on_a_terminal(place: Place, *args: str, out: bool = False, **env: str | None) -> tuple[int, str, str]:
    """Call the command with standard error (and *out*, standard output) on a terminal; return status, out and shown.

    In a process of its own, which begins where the imports are done.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(forked.commands() / "deedbook"), *args],
        cwd=place.path,
        env=environment(**{**place.env, "TERM": "xterm", **env}),
        stdin=subprocess.DEVNULL,
        stdout=theirs if out else subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = _read_all(ours, process)
    told, _ = process.communicate(timeout=SECONDS)
    return process.returncode, (told or b"").decode(), shown.decode().replace("\r\n", "\n")


def _read_all(fd: int, process: "subprocess.Popen[bytes]") -> bytes:
    seen, end = b"", time.monotonic() + SECONDS
    while time.monotonic() < end:
        ready, _, _ = select.select([fd], [], [], 0.2)
        try:
            chunk = os.read(fd, 65536) if ready else b""
        except OSError:  # how Linux says that the other side is closed
            break
        seen += chunk
        if not ready and process.poll() is not None:
            break
    os.close(fd)
    return seen


# --- progress and colours ---------------------------------------------------------------------------------------------


def test_progress_is_shown_on_a_terminal_only(place: Place):
    status, out, shown = on_a_terminal(place, "run", "Say hello to Ada")
    assert (status, out) == (0, "Hello, Ada!\n")
    steps = re.findall(r"· (\w+) +([^\x1b\n]+)", shown)
    assert steps == [
        ("skill", "greet"),
        ("role", "lead"),
        ("role", "planner"),
        ("role", "worker"),
        ("tool", "echo"),
        ("role", "reviewer"),
    ]
    assert "·" not in place.run("run", "Say hello to Ada", status=0).err


def test_progress_never_enters_the_data(place: Place):
    _, out, shown = on_a_terminal(place, "run", "--json", "Say hello to Ada")
    assert out.count("\n") == 1
    assert "· tool" in shown


def test_dumb_terminal_gets_neither_progress_nor_colours(place: Place):
    _, _, shown = on_a_terminal(place, "run", "Say hello to Ada", TERM="dumb")
    assert "·" not in shown
    assert ESCAPE not in on_a_terminal(place, "rn", TERM="dumb")[2]


def test_colours_are_shown_on_a_terminal_and_nowhere_else(place: Place):
    assert ESCAPE in on_a_terminal(place, "rn")[2]
    assert ESCAPE not in place.run("rn", TERM="xterm", status=2).err


def test_no_color_takes_the_colours_and_leaves_the_progress(place: Place):
    _, _, shown = on_a_terminal(place, "run", "Say hello to Ada", NO_COLOR="1")
    assert ESCAPE not in shown
    assert "· role   lead" in shown
    assert ESCAPE not in on_a_terminal(place, "rn", NO_COLOR="1")[2]


def test_json_is_indented_where_a_person_looks_on_and_still_spelled(place: Place):
    args = '{"text":"\\u202e\\u009b31m é"}'
    status, _, shown = on_a_terminal(place, "call", "--json", "echo", "--args", args, out=True)
    assert status == 0
    assert '\n  "result": {\n' in shown
    assert "\\u202e\\u009b31m é" in shown


def test_progress_spells_what_a_model_says(place: Place):
    play(place, [ask("worker", "x\x1b[31m\ny", {})])
    _, _, shown = on_a_terminal(place, "run", "--profile", "played", "Say hello to Ada", NO_COLOR="1")
    assert ESCAPE not in shown
    assert "x\\u{1b}[31m\\u{a}y" in shown


@pytest.mark.parametrize(
    ("delta", "shown"),
    [
        ({"message": "model: unpacking block 3 of 30"}, "· ...    model: unpacking block 3 of 30\n"),
        ({"message": "x\x1b[31m\ny", "percent": 5}, "· ...    x\\u{1b}[31m\\u{a}y\n"),
        ({"message": "x" * 500}, f"· ...    {'x' * 69}…\n"),
        ({"text": "Hel"}, ""),
        ({"message": 5}, ""),
        ("Hello", ""),
        (None, ""),
    ],
)
def test_message_of_a_running_handler_is_one_line_and_nothing_else_is_shown(capsys, delta, shown):
    show_delta(delta)
    assert capsys.readouterr() == ("", shown)


@pytest.mark.parametrize(("columns", "width"), [(40, 79), (120, 119)])
def test_progress_uses_the_width_of_the_terminal(monkeypatch, columns, width):
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    with os.fdopen(ours, "rb", 0) as terminal, os.fdopen(theirs, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("NO_COLOR", "1")
        show_delta({"message": "x" * 500})
        stream.flush()
        assert len(terminal.read(1000).decode().rstrip()) == width


def test_message_of_a_running_handler_is_shown_while_it_runs_and_not_recorded(lab, capsys):
    before = []

    def act(_, ctx):
        ctx.progress({"message": "halfway"})
        before.append(capsys.readouterr().err)
        return {}

    lab.tool("act", act)
    with lab.session(show=show_delta) as session:
        assert isinstance(session.call("act", {}), Ok)
    assert before == ["· ...    halfway\n"]
    assert all("halfway" not in str(event.payload) for event in lab.events())


def test_text_of_a_stream_is_not_shown(lab, capsys):
    """It is what a model wrote: not checked, not reviewed, and seen by no hook."""

    def act(_, ctx):
        ctx.progress({"text": "my card is"})
        return {}

    lab.tool("act", act)
    with lab.session(show=show_delta) as session:
        assert isinstance(session.call("act", {}), Ok)
    assert capsys.readouterr() == ("", "")


# --- streams ----------------------------------------------------------------------------------------------------------


def shell(place: Place, line: str) -> subprocess.CompletedProcess[bytes]:
    """Run *line* in a shell; ``$D`` is the command."""
    env = environment(**{**place.env, "D": COMMAND})
    command = ["/bin/sh", "-c", line]
    return subprocess.run(command, cwd=place.path, env=env, capture_output=True, timeout=SECONDS, check=False)


@pytest.mark.campaign(keep=3)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm_and_never_become_the_ledger(place: Place, closed: str):
    done = shell(place, f'"$D" run "Say hello to Ada" {closed}')
    assert done.returncode == 0, done
    assert b"Traceback" not in done.stderr
    assert place.types()[-1] == "session.end"  # and sound: nothing was printed into it
    assert (done.stdout == b"Hello, Ada!\n") is (">&-" not in closed.replace("2>&-", ""))


def test_closed_standard_input_is_an_empty_request(place: Place):
    done = shell(place, '"$D" run - <&-')
    assert done.returncode == 2
    assert b"the request is empty" in done.stderr


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize("args", ["run hello", "abilities", "--help", 'call echo --args \'{"text":"hi"}\''])
def test_reader_that_leaves_is_no_error_message(place: Place, args: str):
    done = shell(place, f'{{ "$D" {args}; echo "status $?" >&2; }} | true')
    assert b"Traceback" not in done.stderr
    assert b"Broken pipe" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert [place.types(session)[-1] for session in place.sessions()] in ([], ["session.end"])


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize("args", ["abilities", "export S --as seed-002", "run hello"])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_output_that_cannot_be_written_is_one_line_and_exit_1(place: Place, args: str):
    session = place.run("run", "Say hello to Ada", status=0).session
    done = shell(place, f'"$D" {args.replace("S", session)} >/dev/full')
    assert done.returncode == 1
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("error:")]
    assert len(lines) == 1
    assert "No space left on device" in lines[0]
    assert b"Exception ignored" not in done.stderr


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize(
    ("encoding", "answer", "branch"),
    [("latin-1", b"\\u0141", b"\\u251c"), ("ascii", "Ł".encode(), "├".encode()), ("utf-8", "Ł".encode(), "├".encode())],
)
def test_alphabet_of_the_output_never_fails_a_command(place: Place, encoding: str, answer: bytes, branch: bytes):
    """What the alphabet lacks is spelled; ASCII alone is taken for a mistake, as click does."""
    env = environment(PYTHONIOENCODING=encoding)
    for args, expected in ((["run", "Say hello to Łukasz"], answer), (["tree"], branch)):
        command = [COMMAND, *args, *(place.sessions() if args == ["tree"] else [])]
        done = subprocess.run(command, cwd=place.path, env=env, capture_output=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


def test_standard_error_that_nobody_reads_does_not_stop_a_session(place: Place):
    process = place.start("run", "Say hello to Ada", stderr=subprocess.PIPE)
    assert process.stderr
    process.stderr.close()
    process.stderr = None
    assert ended(process).out == "Hello, Ada!\n"
    assert place.types()[-1] == "session.end"


def test_internal_error_is_one_line_unless_its_origin_is_asked_for(place: Place):
    script = (
        "import sys\nfrom deedbook.cli import program as cli\nimport deedbook.workspace.workspace as workspace\n"
        "def broken(*_, **__):\n    raise ValueError('the \\x1b[31mkernel\\nis broken')\n"
        "workspace.read_workspace = broken\nsys.argv = ['deedbook', 'abilities']\ncli.main()\n"
    )
    command = [sys.executable, "-c", script]
    plain = subprocess.run(
        command, cwd=place.path, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert plain.returncode == 1
    assert plain.stderr.startswith("error: internal error: ValueError: the \\u{1b}[31mkernel")
    assert "DEEDBOOK_TRACEBACK=1" in plain.stderr
    assert "Traceback" not in plain.stderr
    loud = subprocess.run(
        command,
        cwd=place.path,
        env=environment(DEEDBOOK_TRACEBACK="1"),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert b"Traceback" in loud.stderr


@pytest.mark.campaign(keep=3)
@pytest.mark.parametrize(
    "command", [["abilities"], ["hooks"], ["doctor"], ["policy", "list"], ["plugins"]], ids=" ".join
)
def test_json_that_nobody_can_take_is_one_line(place: Place, command: list[str]):
    with Path("/dev/full").open("wb") as full:
        process = place.start(*command, "--json", stdout=full)
        ran = ended(process)
    assert ran.status == 1
    assert ran.err == "error: No space left on device\n"
