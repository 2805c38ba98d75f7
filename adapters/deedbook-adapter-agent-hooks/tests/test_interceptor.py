"""The interceptor in Microsoft Agent Framework, which is a host of agent-hooks, with a fake chat client."""

import asyncio
import json
import threading
from collections import Counter
from contextlib import contextmanager
from inspect import iscoroutinefunction
from itertools import chain

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    create_agent_hooks_middleware,
    tool,
)
from agent_hooks import InterceptionBlocked, InterceptionPoint
from click.testing import CliRunner
from deedbook_adapter_agent_hooks import govern
from deedbook_adapter_agent_hooks.session import HookSession

from deedbook import guard
from deedbook.call.session import Session
from deedbook.cli.common import GlobalOptions
from deedbook.cli.program import program
from deedbook.format.reader import read
from deedbook_guard import Conversation, Guard
from deedbook_testing.adapters import AdapterContract

USAGE = {"input_token_count": 7, "output_token_count": 3}
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


class Fake(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A chat client that answers with the calls of each turn, then with ``done``; it calls *count* when asked."""

    def __init__(self, turns, count=lambda: None):
        super().__init__()
        self.turns = [list(turn) for turn in turns]
        self.count = count
        self.number = 0

    def _contents(self):
        self.count()
        if not self.turns:
            return [Content.from_text("done")]
        made = []
        for name, args in self.turns.pop(0):
            self.number += 1
            made.append(
                Content.from_function_call(call_id=f"call-{self.number}", name=name, arguments=json.dumps(dict(args)))
            )
        return made

    def _inner_get_response(self, *, messages, stream, options, **kwargs):
        if stream:

            async def updates():
                yield ChatResponseUpdate(role="assistant", contents=self._contents())
                yield ChatResponseUpdate(role="assistant", contents=[Content.from_usage(dict(USAGE))])

            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

        async def answer():
            return ChatResponse(messages=Message("assistant", self._contents()), usage_details=dict(USAGE))

        return answer()


def told(messages):
    """Return what tools told the model."""
    parts = [content for message in messages for content in message.contents if content.type == "function_result"]
    return "\n".join(str(part.result or part.exception) for part in parts)


def hooked(governed, turns, tools=(), *, count=lambda: None, others=(), verdicts=None, **options):
    """Return an agent whose middleware has the interceptor after the *others*."""
    hooks = govern(governed)

    def keep(record):
        hooks.observe(record)
        verdict = record.verdict
        if verdicts is not None:
            verdicts.setdefault(record.interception_point, (verdict.decision.value, verdict.reason, verdict.message))

    bundle = create_agent_hooks_middleware([*others, hooks], record_sink=keep, **options)
    made = [tool(each, approval_mode="never_require") for each in tools]
    return Agent(Fake(turns, count), tools=made, middleware=[bundle])


class TestContract(AdapterContract):
    """What every adapter must hold."""

    retry_error = ValueError
    failed_model = "unknown"

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


def workspace(place, text="", *, unknown="allow"):
    """Return the guard of a workspace with *text* after the declaration of the agent."""
    (place / ".system").mkdir(exist_ok=True)
    head = f"schema_version: v1\nagents: {{crew: {{kind: program, unknown_tools: {unknown}}}}}\n"
    (place / ".system/deedbook.yaml").write_text(head + text)
    return guard("crew", workspace=place)


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
    assert by_type["agent.reply"]["reply"].endswith("done")
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
    ran = CliRunner().invoke(program, ["-C", str(governed.workspace), "verify"], obj=GlobalOptions())
    assert ran.exit_code == 0, ran.output
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
