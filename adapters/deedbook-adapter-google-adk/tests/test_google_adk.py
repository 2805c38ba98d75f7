"""The adapter for Google ADK, with real agents and a fake model."""

import asyncio
import contextlib
from typing import Any

import pytest
from deedbook_adapter_google_adk import govern
from google.adk.agents import LlmAgent
from google.adk.agents.live_request_queue import LiveRequestQueue
from google.adk.agents.run_config import RunConfig, StreamingMode, ToolThreadPoolConfig
from google.adk.apps import App
from google.adk.code_executors import UnsafeLocalCodeExecutor
from google.adk.models import BaseLlm, LlmResponse
from google.adk.models.base_llm_connection import BaseLlmConnection
from google.adk.plugins import BasePlugin, ReflectAndRetryToolPlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import AgentTool, FunctionTool
from google.adk.workflow import START, Workflow
from google.genai import types

from deedbook.format.errors import BindingError
from deedbook.format.reader import read
from deedbook_testing.adapters import AdapterContract, read_events

USAGE = types.GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=3)


class Fake(BaseLlm):
    """A model that answers with the calls of each turn, then with ``done``; it calls *count* when asked."""

    model: str = "fake"
    turns: list[Any] = []
    count: Any = lambda: None

    async def generate_content_async(self, llm_request, stream=False):
        self.count()
        parts = [types.Part(text="done")]
        if self.turns:
            parts = [types.Part.from_function_call(name=name, args=dict(args)) for name, args in self.turns.pop(0)]
        elif stream:
            for text in ("do", "ne"):
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), partial=True)
        yield LlmResponse(
            content=types.Content(role="model", parts=parts), usage_metadata=USAGE, model_version="fake-1"
        )


def told(events):
    """Return what tools told the model."""
    return "\n".join(str(answer.response) for event in events for answer in event.get_function_responses())


class Conversation:
    """A session of an app, in which the user says something."""

    def __init__(self, root, *plugins):
        self.app = App(name="crew", root_agent=root, plugins=list(plugins))
        self.runner = Runner(app=self.app, session_service=InMemorySessionService())
        self.session = None

    async def say(self, message, mode=StreamingMode.NONE, **more):
        """Return the events that the message causes."""
        if self.session is None:
            self.session = await self.runner.session_service.create_session(app_name="crew", user_id="u")
        content = types.Content(role="user", parts=[types.Part(text=message)]) if isinstance(message, str) else message
        return [
            event
            async for event in self.runner.run_async(
                user_id="u", session_id=self.session.id, new_message=content,
                run_config=RunConfig(streaming_mode=mode, **more),
            )
        ]  # fmt: skip


def agent(tools, turns=(), count=lambda: None, name="crew", **more):
    return LlmAgent(name=name, model=Fake(turns=list(turns), count=count), tools=list(tools), **more)


class TestContract(AdapterContract):
    """What every adapter must hold."""

    framework = "google-adk"
    retry_error = ValueError

    def agent(self, governed, tools, turns):
        """Without the plugin for retries, an exception of a tool ends the run."""
        crew = agent(tools.values(), turns, self.requests.count)
        return Conversation(crew, govern(governed), ReflectAndRetryToolPlugin())

    def framework_agent(self, agent):
        return agent.app

    def team(self, governed, tools, turns):
        inner = AgentTool(agent(tools.values(), turns, self.requests.count, name="delegate"))
        outer = agent([inner], [[("delegate", {"request": "go"})]], self.requests.count)
        return Conversation(outer, govern(governed))

    async def run(self, agent):
        return told(await agent.say("go"))

    async def stream(self, agent):
        return told(await agent.say("go", StreamingMode.SSE))


def kinds(governed):
    return [event.type for event in read_events(governed) if event.type.startswith(("tool.", "llm."))]


def tool_with(done):
    def send(text: str) -> str:
        """Send a text."""
        done.append(text)
        return f"sent {text}"

    return send


SEND = [[("send", {"text": "a"})]]


@pytest.mark.parametrize("mode", [StreamingMode.NONE, StreamingMode.SSE])
def test_model_usage_and_instruction_are_recorded(program_guard, mode):
    governed = program_guard()
    crew = Conversation(agent([tool_with([])], SEND, instruction="Be brief."), govern(governed))
    asyncio.run(crew.say("go", mode))
    found = read_events(governed)
    answers = [event.payload["response"] for event in found if event.type == "llm.response"]
    requests = [event.payload["request"] for event in found if event.type == "llm.request"]
    assert answers[1] == {**answers[1], "text": "done", "model": "fake-1", "finish_reason": "stop"}
    assert answers[1]["usage"] == {"input_tokens": 7, "output_tokens": 3}
    assert [each["role"] for each in requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert "Be brief." in requests[0]["messages"][0]["content"]
    assert requests[0]["tools"][0]["schema_in"]["properties"].keys() == {"text"}
    order = [event.type for event in found if event.type.startswith(("tool.", "llm."))]
    assert order == ["llm.request", "llm.response", "tool.call", "tool.result", "llm.request", "llm.response"]


class Changing(BasePlugin):
    """A plugin that changes the arguments of a tool in place, and the request to a model."""

    async def before_tool_callback(self, *, tool, tool_args, tool_context):
        tool_args["text"] = "changed"

    async def before_model_callback(self, *, callback_context, llm_request):
        llm_request.config.system_instruction = "changed"


def test_what_a_later_plugin_changes_is_judged_as_it_is_done(program_guard):
    governed, done = program_guard(), []
    asyncio.run(Conversation(agent([tool_with(done)], SEND), govern(governed), Changing("late")).say("go"))
    (call,) = [event.payload for event in read_events(governed) if event.type == "tool.call"]
    assert done == ["changed"]
    assert call["args"]["input"] == {"text": "changed"}
    (request, *_) = [event.payload["request"] for event in read_events(governed) if event.type == "llm.request"]
    assert request["messages"][0] == {"role": "system", "content": "changed"}


class Answering(BasePlugin):
    """A plugin that answers in the place of tools."""

    async def before_tool_callback(self, *, tool, tool_args, tool_context):
        return {"result": "from a cache"}


@pytest.mark.parametrize("first", [True, False])
def test_answer_of_another_plugin_is_no_call(program_guard, first):
    governed, done = program_guard(), []
    plugins = [govern(governed), Answering("cache")]
    crew = Conversation(agent([tool_with(done)], SEND), *(plugins if first else reversed(plugins)))
    assert "from a cache" in told(asyncio.run(crew.say("go")))
    assert done == []
    assert "tool.call" not in kinds(governed)


def test_two_guards_share_a_tool_and_a_model(program_guard):
    """The guard of the app that runs decides; without a guard, nothing is recorded."""
    done = []
    tool, model = FunctionTool(tool_with(done)), Fake()
    one, other = program_guard(name="one"), program_guard("deny", name="other")
    crews = [Conversation(LlmAgent(name="crew", model=model, tools=[tool]), govern(each)) for each in (one, other)]
    free = Conversation(LlmAgent(name="crew", model=model, tools=[tool]))
    for each in (*crews, free):
        model.turns = list(SEND)
        asyncio.run(each.say("go"))
    assert done == ["a", "a"]
    models = ["llm.request", "llm.response"]
    assert kinds(one) == [*models, "tool.call", "tool.result", *models]
    assert kinds(other) == [*models, "tool.denied", *models]


def test_call_that_needs_a_person_pauses_the_run(program_guard):
    """A resumed run is judged again: the yes of the framework is no signed approval."""
    governed, done = program_guard("ask"), []
    crew = Conversation(agent([tool_with(done)], SEND), govern(governed, pause=True))

    async def run():
        calls = [call for event in await crew.say("go") for call in event.get_function_calls()]
        (wanted,) = [call for call in calls if call.name == "adk_request_confirmation"]
        assert wanted.args["toolConfirmation"]["payload"]["approval"]
        assert "NEEDS_HUMAN" in wanted.args["toolConfirmation"]["hint"]
        yes = types.FunctionResponse(id=wanted.id, name=wanted.name, response={"confirmed": True})
        return await crew.say(types.Content(role="user", parts=[types.Part(function_response=yes)]))

    assert "NEEDS_HUMAN" in told(asyncio.run(run()))
    assert done == []
    assert "tool.call" not in kinds(governed)


class Waiting(Fake):
    """A model that does not answer."""

    begun: Any = None

    async def generate_content_async(self, llm_request, stream=False):
        self.begun.set()
        await asyncio.Event().wait()
        yield


def test_cancelled_request_has_an_outcome(program_guard):
    governed = program_guard()

    async def cancel():
        begun = asyncio.Event()
        crew = Conversation(LlmAgent(name="crew", model=Waiting(begun=begun)), govern(governed))
        task = asyncio.create_task(crew.say("go"))
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    found = [(each.type, each.payload.get("outcome")) for each in read_events(governed) if each.type.startswith("llm.")]
    assert found == [("llm.request", None), ("llm.error", "cancelled")]


def test_what_acts_outside_of_the_plugin_is_refused(program_guard):
    governed = program_guard()
    coder = agent([], code_executor=UnsafeLocalCodeExecutor())
    with pytest.raises(RuntimeError, match="UnsafeLocalCodeExecutor runs code"):
        asyncio.run(Conversation(coder, govern(governed)).say("go"))
    isolated = AgentTool(agent([tool_with([])], SEND, name="helper"), include_plugins=False)
    crew = Conversation(agent([isolated], [[("helper", {"request": "go"})]]), govern(governed))
    with pytest.raises(RuntimeError, match="include_plugins=False"):
        asyncio.run(crew.say("go"))


@pytest.mark.parametrize("unknown", ["allow", "deny"])
def test_tool_that_is_a_step_of_a_workflow_is_governed(program_guard, unknown):
    governed, done = program_guard(unknown), []
    steps = Workflow(name="crew", edges=[(START, FunctionTool(tool_with(done)))])
    asyncio.run(Conversation(steps, govern(governed)).say('{"text": "a"}'))
    assert done == (["a"] if unknown == "allow" else [])
    assert kinds(governed) == (["tool.call", "tool.result"] if unknown == "allow" else ["tool.denied"])


def test_tool_in_a_thread_belongs_to_the_conversation(program_guard):
    governed, done = program_guard(), []
    crew = Conversation(agent([tool_with(done)], SEND), govern(governed))
    with governed.conversation("order a7") as conversation:
        asyncio.run(crew.say("go", tool_thread_pool_config=ToolThreadPoolConfig()))
    assert done == ["a"]
    recorded = read(governed.workspace / f".deedbook/sessions/{conversation.id}/.events.jsonl")
    assert "tool.result" in [event.type for event in recorded]


class Connection(BaseLlmConnection):
    """A live connection over which the model asks for one call, and says ``done`` when it has the answers."""

    def __init__(self, call):
        self.call, self.answered = call, asyncio.Event()

    async def send_history(self, history):
        pass

    async def send_content(self, content):
        self.answered.set()

    async def send_realtime(self, blob):
        pass

    async def receive(self):
        yield LlmResponse(content=types.Content(role="model", parts=[self.call]))
        await asyncio.wait_for(self.answered.wait(), 30)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="done")]), turn_complete=True)

    async def close(self):
        pass


class LiveFake(Fake):
    """A model with live connections."""

    @contextlib.asynccontextmanager
    async def connect(self, llm_request):
        yield Connection(types.Part.from_function_call(name="send", args={"text": "a"}))


@pytest.mark.parametrize("unknown", ["allow", "deny"])
def test_tools_of_a_live_run_are_governed(program_guard, unknown):
    """What is said over a live connection is not seen, and the ledger says so."""
    governed, done = program_guard(unknown), []
    crew = Conversation(LlmAgent(name="crew", model=LiveFake(), tools=[tool_with(done)]), govern(governed))

    async def run():
        session = await crew.runner.session_service.create_session(app_name="crew", user_id="u")
        queue = LiveRequestQueue()
        live = crew.runner.run_live(user_id="u", session_id=session.id, live_request_queue=queue)
        async with contextlib.aclosing(live):
            async for event in live:
                if event.get_function_responses():
                    break
        return told([event])

    answer = asyncio.run(run())
    allowed = unknown == "allow"
    assert ("sent a" in answer) == allowed
    assert done == (["a"] if allowed else [])
    found = read_events(governed)
    assert [each.type for each in found if each.type.startswith("tool.")] == (
        ["tool.call", "tool.result"] if allowed else ["tool.denied"]
    )
    assert [each.payload["said"] for each in found if each.payload.get("event") == "LiveConnection"] == [
        {"agent": "crew"}
    ]


def test_requests_over_an_unseen_connection_are_refused(program_guard):
    crew = Conversation(LlmAgent(name="crew", model=LiveFake(model="gemini-3.5-flash")), govern(program_guard()))
    with pytest.raises(RuntimeError, match="support_cfc sends its requests"):
        asyncio.run(crew.say("go", support_cfc=True))


def test_version_that_is_not_tested_is_refused(program_guard, monkeypatch):
    monkeypatch.setattr("deedbook_adapter_google_adk.BELOW", "1.0")
    with pytest.raises(BindingError, match="is tested with google-adk"):
        govern(program_guard())
