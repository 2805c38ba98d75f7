"""The bridge's client, a real process: whatever is wrong with the runtime or the input, the answer is no, in a line."""

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from deedbook.format.copies import mark_copy
from deedbook.format.files import Folder
from deedbook_serve.bridging import client

HOOK = [sys.executable, "-I", "-S", client.__file__]
ANSWER = b"0 2 0\n{}"


def hook(*args, stdin=b"{}", cwd=None, **options):
    """Start the client as an agent does; return exit status, output and complaint."""
    ran = subprocess.run([*HOOK, *args], input=stdin, capture_output=True, cwd=cwd, timeout=30, check=False, **options)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


@contextmanager
def answering(folder, *parts, hang=False):
    """Listen at the bridge's socket of *folder* and send *parts* to whoever comes; give what they sent."""
    heard, over = [], threading.Event()
    folder.mkdir(parents=True, exist_ok=True)
    before = os.getcwd()
    listening = socket.socket(socket.AF_UNIX)
    os.chdir(folder)
    try:
        listening.bind("bridge.sock")
    finally:
        os.chdir(before)
    listening.listen()

    def serve():
        link, _ = listening.accept()
        with link:
            head = b""
            while not head.endswith(b"\n"):
                head += link.recv(1)
            body = b""
            while len(body) < int(head.split()[-1]):
                body += link.recv(65536)
            heard.extend([head, body])
            for part in parts:
                link.sendall(part)
            if hang:
                over.wait(20)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        over.set()
        listening.close()
        thread.join(5)


def refused(told, event="PreToolUse"):
    status, out, err = told
    assert err.startswith("Deedbook: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert status == 2
    if event == "PermissionRequest":
        assert json.loads(out)["hookSpecificOutput"]["decision"]["behavior"] == "deny"
    else:
        assert out == ""
    return err


def test_the_answer_is_passed_on_as_it_is(tmp_path):
    with answering(tmp_path, b"3 5 4\nhel", b"lo", b"why?") as heard:
        assert hook("--state", str(tmp_path), "claude-code", "PreToolUse", stdin=b"body") == (3, "hello", "why?")
    assert heard == [b"deedbook-bridge 1 claude-code PreToolUse 4\n", b"body"]


def test_the_state_folder_is_found_above(tmp_path):
    below = tmp_path / ("deep" * 30) / ("deeper" * 20)
    below.mkdir(parents=True)
    with answering(tmp_path / ".deedbook", ANSWER):
        assert hook("claude-code", "PreToolUse", cwd=below) == (0, "{}\n", "")


def test_a_state_folder_far_from_the_root_of_the_disk_is_reached(tmp_path):
    far = tmp_path / ("a" * 100) / ("b" * 100)
    with answering(far, ANSWER):
        assert hook("--state", str(far), "claude-code", "PreToolUse")[0] == 0


@pytest.mark.parametrize("event", ["PreToolUse", "UserPromptSubmit", "PreCompact", "PermissionRequest", "ConfigChange"])
def test_without_a_runtime_nothing_goes_on(tmp_path, event):
    assert "deedbook serve" in refused(hook("--state", str(tmp_path), "claude-code", event), event)


@pytest.mark.parametrize("event", ["Stop", "TeammateIdle", "PostToolUse", "SessionStart", "Notification", "Unheard"])
def test_without_a_runtime_an_agent_is_not_made_to_go_on(tmp_path, event):
    status, out, err = hook("--state", str(tmp_path), "claude-code", event)
    assert (status, out) == (1, "")
    assert "deedbook serve" in err


def test_without_a_state_folder_nothing_goes_on(tmp_path):
    assert "state folder" in refused(hook("claude-code", "PreToolUse", cwd=tmp_path))


@pytest.mark.parametrize(
    "parts",
    [
        [], [b"nonsense\n"], [b"0 0\n"], [b"0 -1 0\n"], [b"256 0 0\n"], [b"0 99999999999 0\n"], [b"x" * 100],
        [b"0 10 0\nshort"], [b"0 2"],
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_no(tmp_path, parts):
    with answering(tmp_path, *parts):
        refused(hook("--state", str(tmp_path), "claude-code", "PreToolUse"))


@pytest.mark.parametrize("parts", [[], [b"0 2 0\n{"]])
def test_a_late_answer_is_no(tmp_path, parts):
    with answering(tmp_path, *parts, hang=True):
        err = refused(hook("--state", str(tmp_path), "--limit", "0.3", "claude-code", "PreToolUse"))
    assert "within 0.3 s" in err


def test_an_input_that_never_ends_is_no(tmp_path):
    ran = subprocess.Popen(
        [*HOOK, "--state", str(tmp_path), "--limit", "0.3", "claude-code", "PreToolUse"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with ran:
        assert ran.wait(20) == 2
        assert b"within" in ran.stderr.read()


def test_an_input_that_is_too_large_is_no(tmp_path):
    with answering(tmp_path, ANSWER):
        err = refused(hook("--state", str(tmp_path), "claude-code", "PreToolUse", stdin=b"x" * (client.LARGEST + 1)))
        assert "larger" in err
        assert hook("--state", str(tmp_path), "claude-code", "PreToolUse", stdin=b"x")[0] == 0


@pytest.mark.parametrize(
    "args",
    [
        [], ["PreToolUse"], ["--state"], ["--limit", "x", "claude-code", "PreToolUse"],
        ["--limit", "-1", "claude-code", "PreToolUse"], ["--what", "x", "claude-code", "PreToolUse"],
        ["claude code", "PreToolUse"], ["claude-code", "Pre\nToolUse"], ["claude-code", "x" * 101], ["a", "b", "c"],
    ],
)  # fmt: skip
def test_a_wrong_call_is_no(tmp_path, args):
    refused(hook(*args, cwd=tmp_path))


def test_a_reason_cannot_break_out_of_its_json(tmp_path):
    refused(hook("--state", '/no/"\\\n\x1b[31m', "claude-code", "PermissionRequest"), "PermissionRequest")


def test_streams_that_are_closed_are_no_yes(tmp_path):
    with answering(tmp_path, ANSWER):
        ran = subprocess.run(
            ["/bin/sh", "-c", '"$@" >&-', "sh", *HOOK, "--state", str(tmp_path), "claude-code", "PreToolUse"],
            input=b"{}", stderr=subprocess.DEVNULL, timeout=30, check=False,
        )  # fmt: skip
    assert ran.returncode == 2


def test_the_client_imports_nothing_but_what_a_socket_needs():
    code = f"""import sys; before = set(sys.modules); sys.argv = ["x"]
exec(open({client.__file__!r}).read(), {{}}); print(*set(sys.modules) - before)"""
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) <= {"_socket"}


def test_state_folder_that_is_searched_is_not_one_that_others_may_write(tmp_path):
    (tmp_path / ".deedbook").mkdir()
    (tmp_path / ".deedbook").chmod(0o777)
    status, out, err = hook("claude-code", "PreToolUse", cwd=tmp_path)
    assert (status, out) == (2, "")
    assert "can be written by other users" in err


def test_search_for_the_state_folder_stops_at_a_copy_that_deedbook_made(tmp_path):
    (tmp_path / "tasks/t1/worktree/src").mkdir(parents=True)
    with Folder.at(tmp_path) as root:
        mark_copy(root, "tasks/t1/worktree")
    with answering(tmp_path / ".deedbook", ANSWER):
        status, out, err = hook("claude-code", "PreToolUse", cwd=tmp_path / "tasks/t1/worktree/src")
        assert (status, out) == (2, "")
        assert "tasks/t1/worktree is a copy of a repository" in err
        assert hook("claude-code", "PreToolUse", cwd=tmp_path / "tasks/t1")[0] == 0
