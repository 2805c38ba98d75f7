"""The bridge whole: a real runtime, and the client that an agent starts for every event, a real process each."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import serving
from agents import SMALLEST, Heard, sent
from commandline import Place, until

from deedbook_serve.bridging import client
from deedbook_serve.client import Runtime
from deedbook_serve.serving.addresses import connect

READ = {"tool_name": "Read", "tool_input": {"file_path": "/x"}, "tool_use_id": "t1"}


class Coder(Place):
    """A workspace that a coding agent works in."""

    def __init__(self, path, **settings):
        super().__init__(path)
        said = {"schema_version": "v1", "agents": {"claude-code": {}}, "policies": SMALLEST, **settings}
        self.system("deedbook.yaml", json.dumps(said))

    def hook(self, event, session="s1", *, limit=30, body=None, agent="claude-code", **more):
        said = json.dumps(sent(event, self.path, session, **more)).encode() if body is None else body
        command = [sys.executable, "-I", "-S", client.__file__, "--limit", str(limit), agent, event]
        ran = subprocess.run(command, input=said, capture_output=True, cwd=self.path, timeout=60, check=False)
        return Heard(ran.returncode, ran.stdout, ran.stderr)

    def recorded(self, session):
        """Return the sessions here that record the agent's *session*, oldest first."""
        return [
            event.payload["session_id"]
            for event in self.workspace_events()
            if event.type == "bridge.session" and event.payload["agent_session"] == session
        ]

    def workspace_events(self):
        from deedbook.format.reader import read

        return list(read(self.path / ".deedbook" / "workspace" / ".events.jsonl"))


@pytest.fixture(scope="module")
def coder(tmp_path_factory):
    """Give a workspace that is served; in the end every ledger is sound."""
    made = Coder(tmp_path_factory.mktemp("coder") / "workspace")
    with serving.served(made):
        yield made


def test_a_session_from_beginning_to_end_leaves_one_sound_story(coder):
    command = {"tool_name": "Bash", "tool_input": {"command": "npm test"}, "tool_use_id": "t3"}
    edit = {"tool_name": "Edit", "tool_use_id": "t2"}
    assert coder.hook("SessionStart", "whole", source="startup").status == 0
    assert coder.hook("UserPromptSubmit", "whole", prompt="Mend the test").json is None
    assert coder.hook("PreToolUse", "whole", **READ).json is None
    assert coder.hook("PostToolUse", "whole", **READ, tool_response={"file": {}}).json is None
    inside = {"file_path": str(coder.path / "src/a.py"), "old_string": "a", "new_string": "b"}
    assert coder.hook("PreToolUse", "whole", **edit, tool_input=inside).json is None
    assert coder.hook("PostToolUse", "whole", **edit, tool_input=inside, tool_response={"success": True}).status == 0
    heard = coder.hook("PreToolUse", "whole", tool_name="Write", tool_input={"file_path": "/etc/x", "content": ""})
    assert (heard.status, heard.decision) == (2, "deny")
    assert coder.hook("PreToolUse", "whole", **command).decision == "ask"
    assert coder.hook("PostToolUseFailure", "whole", **command, error="Exit code 1").status == 0
    assert coder.hook("Stop", "whole", stop_hook_active=False).json is None
    assert coder.hook("SessionEnd", "whole", reason="other").status == 0
    (session,) = coder.recorded("whole")
    assert coder.types(session) == [
        "session.start", "bridge.session", "bridge.told", "user.message", "policy.check", "tool.call", "tool.result",
        "policy.check", "tool.call", "tool.result", "policy.check", "tool.denied",
        "policy.check", "approval.deferred", "tool.call", "tool.error", "bridge.told", "session.end",
    ]  # fmt: skip
    coder.run("verify", session, status=0)
    assert "the agent asks" in coder.run("replay", session, status=0).out


def test_two_agents_at_once_stay_apart(coder):
    def use(number):
        session, told = f"both{number % 2}", {**READ, "tool_use_id": f"t{number}"}
        told["tool_input"] = {"file_path": f"/{number}"}
        assert coder.hook("PreToolUse", session, **told).status == 0
        assert coder.hook("PostToolUse", session, **told, tool_response=number).status == 0

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(8)))
    for which in (0, 1):
        (session,) = coder.recorded(f"both{which}")
        events = coder.events(session)
        calls = {event.span: event.payload["args"]["file_path"] for event in events if event.type == "tool.call"}
        results = {calls[e.parent]: e.payload["result"] for e in events if e.type == "tool.result"}
        assert results == {f"/{number}": number for number in range(8) if number % 2 == which}


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[" * 100_000, b"x" * 1_000_000])
def test_an_input_that_is_none_is_denied(coder, body):
    assert coder.hook("PreToolUse", body=body).decision == "deny"


@pytest.mark.parametrize(
    "raw", [b"nonsense\n", b"deedbook-bridge 2 a B 0\n", b"deedbook-bridge 1 a B 99999999\n", b"x" * 1000 + b"\n"]
)
def test_what_is_no_request_is_answered_with_no(coder, raw):
    with connect(coder.path / ".deedbook/bridge.sock", 20) as link:
        link.sendall(raw)
        assert link.recv(100).startswith(b"2 0 ")


def test_who_goes_away_in_the_middle_disturbs_nobody(coder):
    for raw in (b"deed", b"deedbook-bridge 1 claude-code PreToolUse 100\n{", b""):
        with connect(coder.path / ".deedbook/bridge.sock", 20) as link:
            link.sendall(raw)
    assert coder.hook("PreToolUse", "after", **READ).status == 0


def test_the_socket_is_its_owners_alone(coder):
    assert (coder.path / ".deedbook/bridge.sock").stat().st_mode & 0o777 == 0o600
    assert (coder.path / ".deedbook").stat().st_mode & 0o077 == 0


def test_a_runtime_that_was_killed_between_before_and_after_leaves_an_unknown_and_hears_the_rest(tmp_path):
    coder = Coder(tmp_path / "workspace")
    process = serving.start(coder)
    assert coder.hook("PreToolUse", **READ).status == 0
    serving.stop(process, signal.SIGKILL)
    heard = coder.hook("PreToolUse", **{**READ, "tool_use_id": "t2"})
    assert (heard.status, heard.json) == (2, None)
    assert "deedbook serve" in heard.err
    with serving.served(coder):
        assert coder.hook("PostToolUse", **READ, tool_response={"file": {}}).status == 0
        first, second = coder.recorded("s1")
        assert coder.types(first)[-2:] == ["tool.error", "session.end"]
        assert [e.payload["outcome"] for e in coder.events(first) if e.type == "tool.error"] == ["unknown"]
        (link,) = [event.payload for event in coder.events(second) if event.type == "bridge.session"]
        assert link["continues"] == first
        (unasked,) = [event.payload for event in coder.events(second) if event.type == "tool.unasked"]
        assert (unasked["tool_name"], unasked["call_id"]) == ("claude-code/Read", "t1")


def test_a_runtime_that_hangs_or_dies_while_it_is_asked_is_a_no(tmp_path):
    coder = Coder(tmp_path / "workspace")
    process = serving.start(coder)
    process.send_signal(signal.SIGSTOP)
    try:
        assert coder.hook("PreToolUse", **READ, limit=0.5).status == 2
        told = []
        asking = threading.Thread(target=lambda: told.append(coder.hook("PreToolUse", **READ)))
        asking.start()
        until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) > 0)
    finally:
        serving.stop(process, signal.SIGKILL)
    asking.join(30)
    assert told[0].status == 2


def test_a_drained_runtime_ends_the_sessions_of_agents(tmp_path):
    coder = Coder(tmp_path / "workspace")
    with serving.served(coder):
        coder.hook("PreToolUse", **READ)
        with Runtime(coder.path) as runtime:
            health = runtime.health()
        assert (health["sessions"], health["agents"]) == (0, 1)
        assert "0 sessions of clients, 1 of coding agents" in coder.here("serve", "--status", status=0).out
    (session,) = coder.recorded("s1")
    assert coder.types(session)[-2:] == ["tool.error", "session.end"]
