"""Coding agents as their documentation has them: what they send to a hook, and what they hear."""

import json

from deedbook.contract import Principal
from deedbook.format.reader import read
from deedbook_serve.bridging.session_table import AgentSessionTable

ADA, ROBIN = Principal("ada", "runtime"), Principal("robin", "runtime")
SMALLEST = {
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
"""The policies of the smallest useful workspace."""


def sent(event, cwd, session="abc123", **more):
    """Return the input of a hook of Claude Code, as its reference shows them."""
    return {
        "session_id": session,
        "prompt_id": "550e8400-e29b-41d4-a716-446655440000",
        "transcript_path": "/Users/ada/.claude/projects/x/00893aaf-19fa-41d2-8238-13269b9b3ca0.jsonl",
        "cwd": str(cwd),
        "permission_mode": "default",
        "hook_event_name": event,
        **more,
    }


class Heard:
    """What the agent hears: exit status, the JSON on standard output, and the text on standard error."""

    def __init__(self, status, out, err, undo=None):
        self.undo = undo
        self.status, self.json, self.err = status, json.loads(out) if out else None, err.decode()

    @property
    def own(self):
        return self.json["hookSpecificOutput"]

    @property
    def decision(self):
        return self.own["permissionDecision"] if self.json else None


class Agent:
    """A coding agent that talks to the bridge's desk in this process."""

    def __init__(self, lab, name="claude-code", **options):
        self.lab, self.name = lab, name
        self.kernel = lab.kernel(**options)
        self.desk = AgentSessionTable(self.kernel)

    def say(self, event, *, session="abc123", principal=ADA, **more):
        body = json.dumps(sent(event, self.lab.path, session, **more)).encode()
        return self.raw(event, body, principal)

    def raw(self, event, body, principal=ADA):
        return Heard(*self.desk.answer(self.name, event, body, principal))

    def before(self, tool, args, call="toolu_01", **more):
        return self.say("PreToolUse", tool_name=tool, tool_input=args, tool_use_id=call, **more)

    def after(self, tool, args, result, call="toolu_01", **more):
        more = {"tool_response": result, "duration_ms": 12, **more}
        return self.say("PostToolUse", tool_name=tool, tool_input=args, tool_use_id=call, **more)

    def failed(self, tool, args, error, call="toolu_01", **more):
        more = {"error": error, "is_interrupt": False, **more}
        return self.say("PostToolUseFailure", tool_name=tool, tool_input=args, tool_use_id=call, **more)

    # --- the record --------------------------------------------------------------------------------------------------

    def sessions(self):
        """Return the sessions here that record one of an agent, oldest first."""
        return [event.payload["session_id"] for event in self.workspace("bridge.session")]

    def workspace(self, event_type):
        return [event for event in read(self.lab.state / "workspace" / ".events.jsonl") if event.type == event_type]

    def events(self, session=None):
        return self.lab.events(session or self.sessions()[-1])

    def types(self, session=None):
        return [event.type for event in self.events(session)]

    def one(self, event_type, session=None):
        (found,) = [event for event in self.events(session) if event.type == event_type]
        return found
