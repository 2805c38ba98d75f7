"""A stage for the flow: a run whose models speak from a script, with the kernel's real context and real schemas."""

import json
from types import SimpleNamespace

import pytest

from deedbook.contract import AbilityInfo, Event, Failed, Principal, Skill, SkillInfo
from deedbook.format.context import ContextFold, Recorder
from deedbook.format.families import schema_of
from deedbook.format.folds import fold
from deedbook.format.schema import Schemas, data_folder, foreign
from deedbook_flow_review import Review

RUN = "a" * 16
SKILL = Skill("greet", "Greets somebody.", "# Greet\n\nUse echo.", frozenset({"echo"}))
LINES = SimpleNamespace(
    directive={"intent": "greet Ada", "constraints": ["be brief"], "needs_advisor": False, "schema_version": "v1"},
    plan={
        "steps": [{"id": "s1", "description": "echo a greeting", "depends_on": []}],
        "risks": [],
        "needs_advisor": False,
        "schema_version": "v1",
    },
    echo={"calls": [{"id": "t1", "name": "echo", "args": {"text": "Hello, Ada!"}}]},
    report={
        "output": "Hello, Ada!",
        "steps_completed": ["s1"],
        "tool_calls_made": ["echo:t1"],
        "schema_version": "v1",
    },
    passed={"verdict": "pass", "feedback": "as planned", "schema_version": "v1"},
    fail={"verdict": "fail", "feedback": "say her name", "schema_version": "v1"},
    advice={"advice": "ask her first", "schema_version": "v1"},
    scaffold={"summary": "an empty page", "created": ["page.md"], "tool_calls_made": [], "schema_version": "v1"},
)


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Actor:
    """An agent whose model answers with the next line of its role's script."""

    def __init__(self, stage, role):
        self.stage = stage
        self.role = stage.aliases.get(role, role)
        self.instructions = f"You are the {role}.\n"

    def complete(self, request, *, tier=None):
        assert tier is None
        whole = {**request, "model": "script", "role": self.role, "skill": None, "schema_version": "v2"}
        assert self.stage.schemas.validator("completion_request_v2").violations(whole) == ()
        self.stage.requests.append((self.role, json.loads(json.dumps(request))))
        line = self.stage.script[self.role].pop(0)
        if isinstance(line, Failed):
            raise line
        return self.stage.spoken(line)

    def use(self, tool_call):
        self.stage.used.append((self.role, tool_call["name"], tool_call["args"]))
        outcome = self.stage.tools[tool_call["name"]]
        if isinstance(outcome, Failed):
            raise outcome
        return outcome

    def message(self, schema, response):
        try:
            message = json.loads(response["text"])
        except ValueError:
            raise Failed("MALFORMED_AGENT_MESSAGE", "not JSON") from None
        violations = self.stage.schemas.validator(schema).violations(message)
        if violations:
            raise Failed("MALFORMED_AGENT_MESSAGE", "; ".join(f"{each.path}: {each.message}" for each in violations))
        return message

    def tools(self):
        return [{"name": "echo", "description": "Echo.", "schema_in": {"type": "object"}}] if self.stage.skill else []


class Stage:
    """A run.

    *script* maps roles to lines: a message, text, ``{"calls": […]}``, a pair of a finish reason and one of these, or a
    `Failed` that the model raises.
    """

    schemas = Schemas.load(data_folder("schemas"))

    def __init__(self, script, *, tools=None, skill=SKILL, aliases=None):
        self.script = {role: list(lines) for role, lines in script.items()}
        self.tools = {"echo": {"text": "Hello, Ada!"}, **(tools or {})}
        self.skill = skill
        self.aliases = aliases or {}
        self.events, self.roles, self.requests, self.used = [], [], [], []
        self.states = {}
        self.context = Recorder(self.append, run=RUN)
        self.context.create("say hello to Ada", "test")
        self.principal = Principal("ada", "test")
        self.session = "s-1"
        self.idempotency_key = "k-1"

    def abilities(self):
        return [AbilityInfo(id="echo", kind="tool", summary="Echo.", effects="none", tags=frozenset())]

    def skills(self):
        return [SkillInfo(skill=self.skill)] if self.skill else []

    def agent(self, role):
        self.roles.append(role)
        self.states[role] = self.context.state
        return Actor(self, role)

    def append(self, event_type, payload):
        schema = schema_of(event_type, payload)
        assert self.schemas.validator(schema).violations(payload) == ()
        self.events.append((event_type, payload))
        return f"{len(self.events):016x}"

    def spoken(self, line):
        finish, line = line if isinstance(line, tuple) else (None, line)
        calls = line["calls"] if isinstance(line, dict) and "calls" in line else []
        response = {
            "text": "" if calls else line if isinstance(line, str) else compact(line),
            "tool_calls": calls,
            "finish_reason": finish or ("tool_use" if calls else "stop"),
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "model": "script",
            "schema_version": "v2",
        }
        assert self.schemas.validator("completion_response_v2").violations(response) == ()
        return response

    def play(self, **settings):
        """Run the flow, which keeps a context, to its end; return the context."""
        assert foreign(Review.spec.settings, place="settings").violations(settings) == ()
        assert Review.spec.gives is None
        assert Review(settings, None)({"prompt": "say hello to Ada"}, self) is None
        assert not self.context.is_live
        return self.context.read()

    def fails(self, **settings):
        """Run the flow to its failure, and return that."""
        with pytest.raises(Failed) as caught:
            self.play(**settings)
        return caught.value

    def told(self, role):
        """Return what each conversation of *role* began with: the user message, as JSON."""
        firsts = [request for who, request in self.requests if who == role and len(request["messages"]) == 2]
        return [json.loads(request["messages"][1]["content"]) for request in firsts]

    def last(self, role):
        """Return the messages of the last request of *role*."""
        return [request for who, request in self.requests if who == role][-1]["messages"]

    def folded(self):
        """Return the context, read back from what was recorded."""
        events = [
            Event(seq, event_type, "runtime", None, f"{seq + 1:016x}", RUN, "", payload)
            for seq, (event_type, payload) in enumerate(self.events)
        ]
        return fold(ContextFold(), events)[RUN]

    def types(self):
        return [event_type for event_type, _ in self.events]


def script(**changes):
    """Return the lines of a run that goes well, with some roles' lines changed."""
    good = {
        "lead": [LINES.directive],
        "planner": [LINES.plan],
        "worker": [LINES.echo, LINES.report],
        "reviewer": [LINES.passed],
    }
    return good | changes


@pytest.fixture
def stage():
    """Set a stage: give the roles' lines that differ from a run that goes well."""

    def set_stage(*, tools=None, skill=SKILL, aliases=None, **changes):
        return Stage(script(**changes), tools=tools, skill=skill, aliases=aliases)

    return set_stage


@pytest.fixture
def lines():
    """Give the messages that the scripts are made of."""
    return LINES
