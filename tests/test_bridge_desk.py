"""The runtime's side of the bridge: what agents say becomes calls of one session, and the answers are theirs."""

import json

import pytest

from deedbook.bridging.desk import Desk
from deedbook.contracts import Principal
from deedbook.rejudging.rederive import rejudge

ADA = Principal("ada", "socket")
RULES = {
    "baseline": {
        "kind": "rules",
        "rules": [
            {"match": {"effects": ["none", "read"]}, "then": "allow"},
            {
                "match": {"abilities": ["claude-code/Edit"], "args": {"/file_path": {"under": ["src", "tests"]}}},
                "then": "allow",
            },
            {"match": {"abilities": ["claude-code/Bash"]}, "then": "ask", "reason": "a person looks first"},
        ],
        "default": "deny",
    }
}


@pytest.fixture
def talk(lab):
    lab.settings(agents={"claude-code": {}}, policies=RULES)
    made = Talk(lab)
    yield made
    made.desk.close()
    for place in lab.state.glob("sessions/*/.events.jsonl"):
        found = [
            (each.call.ability, each.change) for each in rejudge(place, made.kernel.bindings) if each.change != "same"
        ]
        assert not found, found


class Talk:
    """An agent that speaks as Claude Code does."""

    def __init__(self, lab):
        self.lab = lab
        self.kernel = lab.kernel()
        self.desk = Desk(self.kernel)

    def __call__(self, event, agent="claude-code", **said):
        body = {
            "session_id": "abc123",
            "transcript_path": "/home/ada/.claude/projects/x/transcript.jsonl",
            "cwd": str(self.lab.path),
            "permission_mode": "default",
            "hook_event_name": event,
            **said,
        }
        reply = self.desk.answer(agent, event, json.dumps(body).encode(), ADA)
        return reply.status, json.loads(reply.out) if reply.out else None, reply.err.decode()

    def tool(self, event, tool, args, call="toolu_01", **more):
        return self(event, tool_name=tool, tool_input=args, tool_use_id=call, **more)

    def events(self):
        (session,) = {place.parent.name for place in self.lab.state.glob("sessions/*/.events.jsonl")}
        return self.lab.events(session)

    def types(self):
        return [event.type for event in self.events()]


def test_a_read_is_allowed_and_recorded_before_and_after(talk):
    (talk.lab.path / "src").mkdir()
    place = str(talk.lab.path / "src" / "a.py")
    assert talk.tool("PreToolUse", "Read", {"file_path": place}) == (0, None, "")
    assert talk.tool("PostToolUse", "Read", {"file_path": place}, tool_response={"file": {"content": "x"}}) == (
        0,
        None,
        "",
    )
    intent = next(event for event in talk.events() if event.type == "tool.call")
    assert intent.payload == {"tool_name": "claude-code/Read", "args": {"file_path": "src/a.py"}}
    assert intent.principal == "agent:claude-code"
    assert next(e for e in talk.events() if e.type == "tool.result").parent == intent.span


def test_a_denial_says_why_in_the_agents_form(talk):
    status, out, err = talk.tool(
        "PreToolUse", "Edit", {"file_path": "/etc/passwd", "old_string": "a", "new_string": "b"}
    )
    assert status == 2
    assert out["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "Deedbook" in err
    assert talk.types()[-2:] == ["policy.check", "tool.denied"]


def test_what_a_person_decides_is_left_to_the_agents_own_dialogue(talk):
    status, out, _ = talk.tool("PreToolUse", "Bash", {"command": "npm test"})
    assert (status, out["hookSpecificOutput"]["permissionDecision"]) == (0, "ask")
    assert talk.types()[-3:] == ["policy.check", "approval.deferred", "tool.call"]
    assert talk("PermissionRequest", tool_name="Bash", tool_input={"command": "npm test"})[1] is None
    talk.tool("PostToolUse", "Bash", {"command": "npm test"}, tool_response={"stdout": "ok"})
    assert talk.types()[-1] == "tool.result"
    talk("SessionEnd", reason="other")
    assert talk.types()[-1] == "session.end"
