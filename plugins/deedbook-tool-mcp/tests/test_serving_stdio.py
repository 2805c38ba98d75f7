"""The real command at its standard input and output: what a client of any make may do to it, and what is left then."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from deedbook.format.files import Folder
from deedbook.format.reader import list_sessions, read
from deedbook_tool_mcp.serving.stdio import MAX_MESSAGE

SETTINGS = """
schema_version: v1
default: {write: allow}
abilities:
  say/echo: {summary: Give back what is said., handler: {tool: echo}}
  nap:
    summary: Sleep.
    handler: {tool: process}
    with: {argv: [/bin/sleep, "{seconds}"]}
    schema_in: {type: object, properties: {seconds: {type: string}}, required: [seconds]}
    schema_out: true
    effects: write
"""
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}
"""What a client says first; written by hand, since no SDK would send what comes after."""


class Raw:
    """The command, and its streams; *path* is the workspace."""

    def __init__(self, path, command):
        self.path, self.command = path, command
        self.ended = subprocess.Popen(
            [self.command, "mcp", "serve", "--wait", "0"], cwd=path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        self.ids = 0

    def send(self, raw):
        self.ended.stdin.write(raw if isinstance(raw, bytes) else json.dumps(raw).encode() + b"\n")
        self.ended.stdin.flush()

    def ask(self, method, **params):
        """Send a request and return its id."""
        self.ids += 1
        self.send({"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params})
        return self.ids

    def answer(self):
        line = self.ended.stdout.readline()
        assert line, self.ended.stderr.read().decode()
        return json.loads(line)

    def hello(self):
        self.ask("initialize", **HELLO)
        assert self.answer()["result"]["serverInfo"]["name"] == "deedbook"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def leave(self):
        """Close standard input, and return the exit status and what was written to standard error."""
        out, err = self.ended.communicate(timeout=30)
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
        return self.ended.returncode, err.decode()

    def listed(self):
        """Return the sessions of the workspace."""
        with Folder.at(self.path / ".deedbook") as state:
            return list_sessions(state)

    def events(self):
        begun = [each.id for each in self.listed() if each.state != "empty"]  # a folder comes before its ledger
        return [event for name in begun for event in read(self.path / ".deedbook/sessions" / name)]

    def until(self, event_type):
        """Wait until something is recorded."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if (self.path / ".deedbook/sessions").exists() and any(e.type == event_type for e in self.events()):
                return
            time.sleep(0.02)
        raise AssertionError(event_type)

    def deedbook(self, *args):
        return subprocess.run([self.command, *args], cwd=self.path, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def raw(tmp_path, deedbook_command):
    system = tmp_path / ".system"
    system.mkdir()
    (system / "deedbook.yaml").write_text(SETTINGS)
    made = Raw(tmp_path, deedbook_command)
    yield made
    if made.ended.poll() is None:
        made.ended.kill()
    made.ended.communicate()


def deep(levels):
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}\n"


def test_garbage_is_answered_and_passed_over(raw):
    """Every bad message has one answer with a code of JSON-RPC, and then everything goes on."""
    raw.hello()
    bad = [
        b"no json\n", b"\xff\xfe\x00\n", b"[]\n", b'"text"\n', b"{}\n", b'{"jsonrpc":"1.0","id":1,"method":"ping"}\n',
        deep(100_000), b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{' + b'"k":"' + b"x" * MAX_MESSAGE + b'"}}\n',
    ]  # fmt: skip
    for message in bad:
        raw.send(message)
        answer = raw.answer()
        assert (answer["id"], answer["error"]["code"] in (-32700, -32600)) == (None, True), message[:60]
    raw.send(b"\n   \n")
    raw.ask("tools/call", name="say__echo", arguments={"text": "still here"})
    assert raw.answer()["result"]["structuredContent"] == {"text": "still here"}
    raw.ask("no/such/method")
    assert raw.answer()["error"]["code"] == -32601
    raw.ask("tools/call", arguments={})
    assert raw.answer()["error"]["code"] == -32602
    raw.ask("tools/call", name="say__echo", arguments={"text": "x", "more": json.loads("[" * 90 + "]" * 90)})
    answer = raw.answer()
    assert (answer["id"], answer["error"]["data"]["code"]) == (raw.ids, "INTAKE_REFUSED")
    assert raw.leave() == (0, "")
    assert [each.state for each in raw.listed()] == ["ended"]


def test_calls_go_side_by_side_and_each_has_its_answer(raw):
    raw.hello()
    wanted = {raw.ask("tools/call", name="say__echo", arguments={"text": str(n)}): str(n) for n in range(20)}
    answers = [raw.answer() for _ in wanted]
    assert {each["id"]: each["result"]["structuredContent"]["text"] for each in answers} == wanted
    assert raw.leave()[0] == 0


@pytest.mark.parametrize("what", ["nothing", "a file"])
def test_input_that_is_no_pipe_is_served_to_its_end(raw, what):
    raw.leave()
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    told = raw.path / "told.jsonl"
    told.write_text(f"{json.dumps(hello)}\n")
    with (told if what == "a file" else Path(os.devnull)).open() as source:
        done = subprocess.run(
            [raw.command, "mcp", "serve"], cwd=raw.path, stdin=source, capture_output=True, timeout=30, check=True
        )
    assert (len(done.stdout.splitlines()), done.stderr) == (int(what == "a file"), b"")


@pytest.mark.parametrize("way", ["the client is gone", "SIGTERM"])
def test_end_in_the_middle_of_a_call_leaves_an_ended_session_and_no_process(raw, way):
    raw.hello()
    raw.ask("tools/call", name="nap", arguments={"seconds": "300"})
    raw.until("tool.call")
    if way == "SIGTERM":
        raw.ended.send_signal(signal.SIGTERM)
    status, err = raw.leave()
    assert (status, "Traceback" in err) == (0, False), err
    assert [each.state for each in raw.listed()] == ["ended"]
    (error,) = [event for event in raw.events() if event.type == "tool.error"]
    assert error.payload["outcome"] in ("cancelled", "unknown")


def test_killed_server_leaves_a_call_of_unknown_outcome(raw):
    raw.hello()
    raw.ask("tools/call", name="nap", arguments={"seconds": "300"})
    raw.until("tool.call")
    os.kill(raw.ended.pid, signal.SIGKILL)
    raw.ended.wait()
    until = time.monotonic() + 30
    while raw.listed()[0].state == "open" and time.monotonic() < until:
        time.sleep(0.02)  # a program that was just being started holds the lock until it is
    (session,) = raw.listed()
    assert session.state == "interrupted"
    raw.deedbook("sessions", "close", session.id)
    (error,) = [event for event in raw.events() if event.type == "tool.error"]
    assert error.payload["outcome"] == "unknown"
    assert "all 2 sound" in raw.deedbook("verify")


def test_call_that_is_cancelled_by_a_notification_has_no_answer(raw):
    raw.hello()
    nap = raw.ask("tools/call", name="nap", arguments={"seconds": "300"})
    raw.until("tool.call")
    raw.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": nap}})
    echo = raw.ask("tools/call", name="say__echo", arguments={"text": "next"})
    assert raw.answer()["id"] == echo
    raw.leave()
    assert [event.payload["outcome"] for event in raw.events() if event.type == "tool.error"] in (
        ["unknown"],
        ["cancelled"],
    )


def test_arguments_with_a_key_twice_run_nothing_and_are_refused_to_whoever_asked(raw):
    """What a policy would judge would not be what the client sent."""
    raw.hello()
    call = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"say__echo","arguments":%b}}\n'
    for arguments in (b'{"text":"deny","text":"allow"}', b'{"text":"\\ud800"}', b'{"text":NaN}', b'{"$sealed":"x"}'):
        raw.send(call % arguments)
        answer = raw.answer()
        assert (answer["id"], answer["error"]["code"], answer["error"]["data"]["code"]) == (7, -32700, "INTAKE_REFUSED")
    raw.send(call.replace(b'"id":7', b'"id":7,"id":8') % b'{"text":"x"}')
    assert raw.answer()["id"] is None
    raw.ask("tools/call", name="say__echo", arguments={"text": "still here"})
    assert raw.answer()["result"]["structuredContent"] == {"text": "still here"}
    assert raw.leave() == (0, "")
    assert [event.payload["args"] for event in raw.events() if event.type == "tool.call"] == [{"text": "still here"}]
