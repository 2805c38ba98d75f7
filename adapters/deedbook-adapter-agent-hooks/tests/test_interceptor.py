"""The interceptor in Microsoft Agent Framework, which is a host of agent-hooks, with a fake chat client."""

import asyncio
import json
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from inspect import iscoroutinefunction
from itertools import chain

import pytest
from agent_framework import Agent, create_agent_hooks_middleware, tool
from agent_framework_client import FakeChatClient, told
from agent_hooks import (
    AgentContextBuilder,
    ApprovalOutcome,
    ApprovalRequest,
    ApprovalResolution,
    Decision,
    InterceptionBlocked,
    InterceptionPoint,
    Transform,
    Verdict,
)
from click.testing import CliRunner
from deedbook_adapter_agent_hooks import govern
from deedbook_adapter_agent_hooks.session import HookSession

from deedbook import guard
from deedbook.cli.common import GlobalOptions
from deedbook.cli.program import program
from deedbook.format.errors import BindingError
from deedbook.format.reader import read
from deedbook.sessions.session import Session
from deedbook_guard import Conversation, Guard
from deedbook_testing.adapters import AdapterContract
from deedbook_testing.soundness import assert_sound

POINTS = {  # each point: what decides there, and how many requests and texts there were by then
    InterceptionPoint.AGENT_STARTUP: (Guard, "conversation", 0, 0),
    InterceptionPoint.INPUT: (Session, "submit", 0, 0),
    InterceptionPoint.PRE_MODEL_CALL: (Conversation, "abefore_model", 0, 0),
    InterceptionPoint.POST_MODEL_CALL: (Conversation, "aafter_model", 1, 0),
    InterceptionPoint.PRE_TOOL_CALL: (Conversation, "abefore", 1, 0),
    InterceptionPoint.POST_TOOL_CALL: (Conversation, "aafter", 1, 1),
    InterceptionPoint.OUTPUT: (HookSession, "_record_reply", 2, 1),
    InterceptionPoint.AGENT_SHUTDOWN: (Conversation, "end", 2, 1),
}
TOOL_POINTS = (InterceptionPoint.PRE_TOOL_CALL, InterceptionPoint.POST_TOOL_CALL)


def hooked(governed, turns, tools=(), *, count=lambda: None, later=(), verdicts=None, **options):
    """Return an agent whose middleware has the interceptor, before those that come *later*."""
    hooks = govern(governed)

    def keep(record):
        hooks.observe(record)
        verdict = record.verdict
        if verdicts is not None:
            verdicts.setdefault(record.interception_point, (verdict.decision.value, verdict.reason, verdict.message))

    bundle = create_agent_hooks_middleware([hooks, *later], record_sink=keep, **options)
    made = [tool(each, approval_mode="never_require") for each in tools]
    return Agent(FakeChatClient(turns, count), tools=made, middleware=[bundle])


class TestContract(AdapterContract):
    """What every adapter must hold."""

    retry_error = ValueError
    failed_model = "unknown"
    values_hidden = "An interceptor sees the arguments as its host shows them"

    def agent(self, governed, tools, turns):
        return hooked(governed, turns, tools.values(), count=self.requests.count)

    def team(self, governed, tools, turns):
        inner = self.agent(governed, tools, turns)

        async def delegate(text: str) -> str:
            """Let another agent work."""
            return told((await inner.run(text)).messages)

        return self.agent(governed, {"delegate": delegate}, [[("delegate", {"text": "go"})]])

    async def run(self, agent):
        with _reasons():
            return told((await agent.run("go")).messages)

    async def stream(self, agent):
        with _reasons():
            stream = agent.run("go", stream=True)
            async for _ in stream:
                pass
            return told((await stream.get_final_response()).messages)


@contextmanager
def _reasons():
    """Raise a blocked run again with its message: the text of the framework's exception has the code only."""
    try:
        yield
    except InterceptionBlocked as blocked:
        raise RuntimeError(blocked.result.verdict.message) from blocked


def workspace(place, text="", *, unknown="allow", wait=0):
    """Return the guard of a workspace with *text* after the declaration of the agent."""
    (place / ".system").mkdir(exist_ok=True)
    head = f"agents: {{crew: {{kind: program, unknown_tools: {unknown}}}}}\n"
    head = f"schema_version: v1\ndefault: {{write: allow}}\n{head}"
    (place / ".system/deedbook.yaml").write_text(head + text)
    return guard("crew", workspace=place, wait=wait)


def events(governed):
    """Return the events of all sessions, in the order of the sessions' ids."""
    governed.close()
    places = sorted((governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl"))
    return list(chain.from_iterable(read(place) for place in places))


def send(text: str) -> str:
    """Send a text."""
    DONE.append(text)
    return f"sent {text}"


DONE = []


@pytest.fixture(autouse=True)
def done():
    """Give the texts that were sent in a test."""
    DONE.clear()
    return DONE


def run(agent):
    return asyncio.run(agent.run("go"))


def test_eight_points_are_one_session(tmp_path):
    with workspace(tmp_path) as governed:
        run(hooked(governed, [[("send", {"text": "a"})]], [send]))
    found = events(governed)
    own = [event.type for event in found if not event.type.startswith(("hook.", "policy.", "bridge."))]
    assert own == [
        "session.start",
        "user.message",
        "llm.request",
        "llm.response",
        "tool.call",
        "tool.result",
        "llm.request",
        "llm.response",
        "agent.reply",
        "session.end",
    ]
    by_type = {event.type: event.payload for event in found}
    assert by_type["user.message"]["text"] == "go"
    assert by_type["agent.reply"]["reply"] == "done"
    assert by_type["session.end"] == {"ok": True, "reason": "completed"}
    begun = next(event.payload for event in found if event.payload.get("event") == "AgentStartup")
    assert begun["said"]["tools"] == ["send"]


def outcome(agent):
    """Run an agent; return what tools told its model, or why it was blocked."""
    try:
        return told(run(agent).messages)
    except InterceptionBlocked as blocked:
        return f"{blocked.result.interception_point.value}: {blocked.result.verdict.reason}"


def check(governed):
    """Check the ledger: sound, with an intent for each text that was sent, and one outcome for each intent."""
    found = events(governed)
    intents = [event.span for event in found if event.type in ("tool.call", "llm.request")]
    outcomes = Counter(event.parent for event in found if event.type in OUTCOMES)
    assert outcomes == Counter(intents)
    assert sum(event.type == "tool.call" for event in found) == len(DONE)
    assert_sound(governed.workspace)
    return found


OUTCOMES = ("tool.result", "tool.error", "llm.response", "llm.error")


@pytest.mark.parametrize("point", POINTS)
def test_crash_at_a_point_denies(tmp_path, monkeypatch, point):
    """Also where the host could be told nothing more: a fault at the shutdown is a denial in the host's record."""
    where, name, requests, texts = POINTS[point]

    def crash(*_args, **_kwargs):
        raise RuntimeError("the gate crashed")

    asked, verdicts = [], {}
    governed = workspace(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, crash)
        agent = hooked(governed, [[("send", {"text": "a"})]], [send], count=lambda: asked.append(1), verdicts=verdicts)
        said = outcome(agent)
    assert verdicts[point] == ("deny", "deedbook:INTERNAL", "RuntimeError: the gate crashed")
    if point in TOOL_POINTS:  # the model is told, and answers
        assert (len(asked), len(DONE)) == (requests + 1, texts)
        assert "the gate crashed" in said
        assert "sent a" not in said
    else:
        assert (len(asked), len(DONE)) == (requests, texts)
        if point is not InterceptionPoint.AGENT_SHUTDOWN:
            assert said == f"{point.value}: deedbook:INTERNAL"
    check(governed)


@pytest.mark.parametrize("point", POINTS)
def test_time_out_at_a_point_denies(tmp_path, monkeypatch, point):
    """The host waits a second for a gate that does not answer; what the gate does later opens nothing."""
    where, name, requests, texts = POINTS[point]
    original, released = getattr(where, name), threading.Event()
    if iscoroutinefunction(original):

        async def hang(*_args, **_kwargs):
            await asyncio.Event().wait()

    else:

        def hang(*args, **kwargs):
            released.wait(60)
            return original(*args, **kwargs)

    asked, verdicts = [], {}
    governed = workspace(tmp_path)
    agent = hooked(
        governed, [[("send", {"text": "a"})]], [send], count=lambda: asked.append(1), verdicts=verdicts, timeout=1
    )

    async def run_until_released():
        try:
            await agent.run("go")
        except InterceptionBlocked as blocked:
            return blocked.result.interception_point
        finally:
            released.set()
        return None

    with monkeypatch.context() as patch:
        patch.setattr(where, name, hang)
        blocked = asyncio.run(run_until_released())
    assert verdicts[point][:2] == ("deny", "host_error:interceptor_timeout")
    assert blocked is (None if point is InterceptionPoint.AGENT_SHUTDOWN else point)
    assert (len(asked), len(DONE)) == (requests, texts)
    check(governed)


# --- verdicts ---------------------------------------------------------------------------------------------------------


def rewriting(place, event, output):
    """Return the text of a hook whose answer is always a transform with *output*."""
    answer = json.dumps({"decision": "transform", "output": output})
    script = place / "rewrite.py"
    script.write_text(f"import sys\nsys.stdin.read()\nprint({answer!r})\n")
    handler = f"handler: {{script: [{sys.executable}, -S, rewrite.py]}}"
    match = "" if event == "UserPromptSubmit" else ", match: {kind: [tool]}"
    rewrites = "" if event == "PostToolUse" else ", rewrites: true"
    return f"hooks:\n  rewrite: {{event_type: {event}, {handler}, timeout_ms: 30000{match}{rewrites}}}\n"


def test_changed_arguments_are_those_that_the_tool_gets(tmp_path):
    text = rewriting(tmp_path, "PreToolUse", {"tool": "send", "input": {"text": "b"}})
    governed = workspace(tmp_path, text)
    assert outcome(hooked(governed, [[("send", {"text": "a"})]], [send])) == "sent b"
    assert DONE == ["b"]
    check(governed)


def test_narrowed_result_is_what_the_model_is_told(tmp_path):
    governed = workspace(tmp_path, rewriting(tmp_path, "PostToolUse", "[removed]"))
    assert outcome(hooked(governed, [[("send", {"text": "a"})]], [send])) == "[removed]"
    check(governed)


def test_changed_prompt_is_what_the_model_is_asked(tmp_path):
    governed = workspace(tmp_path, rewriting(tmp_path, "UserPromptSubmit", {"prompt": "stay"}))
    outcome(hooked(governed, []))
    found = {event.type: event.payload for event in check(governed)}
    assert found["user.message"]["text"] == "stay"
    assert [each["content"] for each in found["llm.request"]["request"]["messages"]] == ["stay"]


def test_changed_prompt_that_is_more_than_text_is_denied(tmp_path):
    governed = workspace(tmp_path, rewriting(tmp_path, "UserPromptSubmit", {"prompt": "stay"}))
    verdicts = {}
    agent = hooked(governed, [], verdicts=verdicts)
    with pytest.raises(InterceptionBlocked, match="PROMPT_DENIED"):
        asyncio.run(agent.run(["one", "two"]))
    assert "more than text" in verdicts[InterceptionPoint.INPUT][2]
    found = {event.type: event.payload for event in check(governed)}
    assert "llm.request" not in found


def test_refused_prompt_reaches_no_model(tmp_path):
    hook = "hooks:\n  no: {event_type: UserPromptSubmit, handler: {script: [/bin/false]}}\n"
    asked = []
    governed = workspace(tmp_path, hook)
    said = outcome(hooked(governed, [], count=lambda: asked.append(1)))
    assert (said, asked) == ("input: deedbook:PROMPT_DENIED", [])
    check(governed)


def test_refused_session_does_not_begin(tmp_path):
    hook = "hooks:\n  no: {event_type: SessionStart, handler: {script: [/bin/false]}}\n"
    governed = workspace(tmp_path, hook)
    assert outcome(hooked(governed, [])) == "agent_startup: deedbook:SESSION_DENIED"
    assert [event.type for event in check(governed)][-1] == "session.end"


# --- values -----------------------------------------------------------------------------------------------------------

TOO_MUCH = """
policies:
  baseline:
    kind: rules
    rules: [{match: {abilities: [crew/pay], args: {/amount: {min: 101}}}, then: deny, reason: more than 100}]
    default: allow
"""


def pay(amount: int = 500) -> str:
    """Pay an amount."""
    DONE.append(amount)
    return f"paid {amount}"


@pytest.mark.parametrize("amount", [500, "500", " 500 "])
def test_rule_sees_what_the_host_made_of_text(tmp_path, amount):
    governed = workspace(tmp_path, TOO_MUCH, unknown="allow, tools: {pay: {effects: write}}")
    assert "more than 100" in outcome(hooked(governed, [[("pay", {"amount": amount})]], [pay]))
    assert DONE == []
    check(governed)


def test_declared_schema_refuses_a_default_that_the_host_would_fill_in(tmp_path):
    """The page says so: the interceptor cannot see a default."""
    schema = "{type: object, properties: {amount: {type: integer}}, required: [amount]}"
    declared = f"allow, tools: {{pay: {{effects: write, schema_in: {schema}}}}}"
    governed = workspace(tmp_path, TOO_MUCH, unknown=declared)
    assert "SCHEMA_VIOLATION" in outcome(hooked(governed, [[("pay", {})]], [pay]))
    assert DONE == []
    check(governed)


def test_function_that_the_guard_governs_too_is_judged_with_its_default(tmp_path):
    """The other remedy of the page: both calls are recorded, and the second one is denied."""
    governed = workspace(tmp_path, TOO_MUCH, unknown="allow, tools: {pay: {effects: write}}")
    outcome(hooked(governed, [[("pay", {})]], [governed.tool()(pay)]))
    assert DONE == []
    found = [event for event in events(governed) if event.type.startswith("tool.")]
    assert sorted(event.type for event in found) == ["tool.call", "tool.denied", "tool.error"]


# --- approvals --------------------------------------------------------------------------------------------------------

ASKING = "principals: {ada: {key: ada.pub, roles: [approver]}}\n"


class Person:
    """The host's resolver in a test: a person answers with *command*, and the adapter's resolver is asked."""

    def __init__(self, governed, hooks, command):
        self.governed, self.hooks, self.command = governed, hooks, command
        self.seen = []

    async def resolve(self, request):
        answering = asyncio.create_task(self.hooks.resolve(request))
        if self.command:
            identity = request.verdict.approval["deedbook_request"]
            await asyncio.to_thread(cli, self.governed.workspace, "approvals", self.command, identity, "--as", "ada")
        answer = await answering
        self.seen.append(answer.outcome.value)
        return answer


def cli(place, *args):
    ran = CliRunner().invoke(program, ["-C", str(place), *args], obj=GlobalOptions(), standalone_mode=False)
    assert ran.exception is None, repr(ran.exception)
    assert ran.return_value == 0, ran.output


@pytest.fixture
def office(tmp_path, monkeypatch):
    """Give the folder of a workspace with a person who may approve."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    place = tmp_path / "workspace"
    (place / ".system").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.chdir(place)
        cli(place, "keys", "new", "ada", "--out", ".system/ada.pub")
    return place


@pytest.mark.parametrize(("command", "wait", "answer"), [("approve", 60, "approve"), ("", 0, "unresolved")])
def test_only_a_recorded_approval_lifts_a_denial(office, command, wait, answer):
    """The interceptor answers at once, and the resolver waits for the person as long as the guard does."""
    governed = workspace(office, ASKING, unknown="ask", wait=wait)
    hooks = govern(governed, approvals=True)
    person = Person(governed, hooks, command)
    bundle = create_agent_hooks_middleware([hooks], resolver=person, record_sink=hooks.observe, timeout=120)
    made = tool(send, approval_mode="never_require")
    outcome(Agent(FakeChatClient([[("send", {"text": "a"})]]), tools=[made], middleware=[bundle]))
    assert person.seen == [answer]
    assert (["a"] if command else []) == DONE
    check(governed)


def test_resolver_answers_for_its_own_denials_only(tmp_path):
    """What another interceptor wants a person to decide is not decided; a session that is over is a rejection."""
    hooks = govern(workspace(tmp_path, unknown="ask"), approvals=True)
    make = built()
    call = make.pre_tool_call(call_id="1", name="send", args={})
    own = emit(hooks, make.agent_startup(tools_registered=[]), call)[-1]
    assert own.is_liftable
    emit(hooks, make.agent_shutdown(reason="error"))

    def resolve(verdict):
        asked = ApprovalRequest("sha256:0", InterceptionPoint.PRE_TOOL_CALL, verdict, call)
        return asyncio.run(hooks.resolve(asked)).outcome.value

    assert resolve(Verdict.escalate(reason="other")) == "unresolved"
    assert resolve(own) == "reject"


def test_denial_cannot_be_lifted_unless_approvals_are_wanted(tmp_path):
    """The host's own yes is no approval that Deedbook recorded."""

    class Yes:
        def resolve(self, request):
            return ApprovalResolution(ApprovalOutcome.APPROVE, request.context_identity, Verdict.allow())

    governed = workspace(tmp_path, unknown="ask")
    said = outcome(hooked(governed, [[("send", {"text": "a"})]], [send], resolver=Yes()))
    assert DONE == []
    assert "NEEDS_HUMAN" in said
    assert "deedbook approvals approve" in said
    check(governed)


# --- other interceptors, and hosts that do not obey -------------------------------------------------------------------


class Says:
    """Another interceptor, with one verdict for one point."""

    def __init__(self, point, verdict):
        self.point, self.verdict = point, verdict

    def intercept(self, context):
        return self.verdict if context["interception_point"] == self.point.value else Verdict.allow()


@pytest.mark.parametrize("point", [InterceptionPoint.PRE_TOOL_CALL, InterceptionPoint.PRE_MODEL_CALL])
def test_call_that_another_interceptor_denies_is_closed_as_cancelled(tmp_path, point):
    governed = workspace(tmp_path)
    later = [Says(point, Verdict.deny(reason="other"))]
    outcome(hooked(governed, [[("send", {"text": "a"})]], [send], later=later))
    governed.close()
    found = events(governed)
    ended = [event.payload for event in found if event.payload.get("outcome") == "cancelled"]
    assert len(ended) == 1
    assert "the host denied it: other" in ended[0]["message"]
    assert DONE == []


def test_arguments_that_another_interceptor_changes_afterwards_are_found(tmp_path):
    """The effect happened, so its outcome is unknown, and the model does not get the result."""
    governed = workspace(tmp_path)
    change = Verdict(Decision.TRANSFORM, transform=Transform("$target.text", "b"))
    said = outcome(
        hooked(governed, [[("send", {"text": "a"})]], [send], later=[Says(InterceptionPoint.PRE_TOOL_CALL, change)])
    )
    assert DONE == ["b"]
    assert "sent b" not in said
    assert "other arguments than those that were judged" in said
    ended = [event.payload["outcome"] for event in check(governed) if event.type == "tool.error"]
    assert ended == ["unknown"]


def test_host_that_only_evaluates_is_found(tmp_path):
    """With ``evaluate_only`` the host ignores the denial; the call is in the ledger as denied and as ungoverned."""
    governed = workspace(tmp_path, unknown="deny")
    outcome(hooked(governed, [[("send", {"text": "a"})]], [send], mode="evaluate_only"))
    assert DONE == ["a"]
    found = events(governed)
    assert [event.payload["name"] for event in found if event.type == "tool.denied"] == ["crew/send"]
    noted = [event.payload["said"] for event in found if event.payload.get("event") == "UngovernedCall"]
    assert [each["call"]["name"] for each in noted] == ["send"]


def emit(hooks, *contexts):
    async def ask():
        return [await hooks.intercept(context) for context in contexts]

    return asyncio.run(ask())


def built():
    return AgentContextBuilder(agent_id="a", framework="own", session_id="s-1")


def test_points_outside_of_a_session_are_denied(tmp_path):
    make = built()
    hooks = govern(workspace(tmp_path))
    start, stop = make.agent_startup(tools_registered=[]), make.agent_shutdown(reason="completed")
    call = make.pre_tool_call(call_id="1", name="send", args={})
    verdicts = emit(hooks, call, start, start, stop, call, {**start, "spec": "agent-hooks/9.0"}, {"spec": 1})
    said = [each.reason and each.reason.removeprefix("deedbook:") for each in verdicts]
    assert said == [
        "SESSION_ENDED",
        None,
        "BINDING_INVALID",
        None,
        "SESSION_ENDED",
        "BINDING_INVALID",
        "BINDING_INVALID",
    ]


def test_second_call_with_an_open_id_is_denied(tmp_path):
    make = built()
    governed = workspace(tmp_path)
    call = {"call_id": "1", "name": "send", "args": {}}
    verdicts = emit(
        govern(governed),
        make.agent_startup(tools_registered=["send"]),
        make.pre_tool_call(**call),
        make.pre_tool_call(**call),
        make.post_tool_call(**call, value="x"),
        make.post_tool_call(**call, value="x"),
        make.pre_tool_call(**call),
        make.agent_shutdown(reason="cancelled"),
    )
    assert [each.decision.value for each in verdicts] == ["allow", "allow", "deny", "allow", "deny", "allow", "allow"]
    found = [event for event in events(governed) if event.type.startswith("tool.")]
    assert [event.type for event in found] == ["tool.call", "tool.result", "tool.call", "tool.error"]
    assert found[-1].payload["outcome"] == "cancelled"


def test_version_that_is_not_tested_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("deedbook_adapter_agent_hooks.BELOW", "0.1")
    with pytest.raises(BindingError, match="is tested with agent-hooks-sdk"):
        govern(workspace(tmp_path))
