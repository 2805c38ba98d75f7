"""The adapter for the OpenAI Agents SDK, with real agents and the SDK's scripted model."""

import asyncio
import gc
import itertools
import json
from typing import Any

import pytest
from agents import (
    Agent,
    AgentHooks,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    Runner,
    ShellTool,
    Usage,
    WebSearchTool,
    function_tool,
)
from agents.testing import ScriptedModel, assistant_message, function_call
from deedbook_adapter_openai_agents import govern, list_tools

from deedbook import guard
from deedbook.format.errors import BindingError
from deedbook.format.reader import read
from deedbook_testing.adapters import AdapterContract, read_events

NO_TRACES = RunConfig(tracing_disabled=True)
numbers = itertools.count()


class Fake(ScriptedModel):
    """A model that answers with prepared items, and calls `count` when it is asked."""

    count = staticmethod(lambda: None)

    async def _next_resolved_step(self, call):
        self.count()
        return await super()._next_resolved_step(call)


def fake(turns, count=lambda: None):
    """Return a model that answers with the calls of each turn, then with ``done``; it calls *count* when asked."""
    calls = [[function_call(name, dict(args), call_id=f"c{next(numbers)}") for name, args in turn] for turn in turns]
    made = Fake([*calls, [assistant_message("done")]], default_usage=Usage(1, 7, output_tokens=3, total_tokens=10))
    made.count = count
    return made


class TestContract(AdapterContract):
    """What every adapter must hold."""

    framework = "openai-agents"
    retry_error = ValueError
    failed_model = "unknown"

    def agent(self, governed, tools, turns):
        made = Agent(
            name="worker",
            model=fake(turns, self.requests.count),
            tools=[function_tool(each) for each in tools.values()],
        )
        return made, govern(governed, made)

    def framework_agent(self, agent):
        return agent[0]

    def team(self, governed, tools, turns):
        worker, _ = self.agent(governed, tools, turns)
        lead = Agent(name="lead", model=fake([[("transfer_to_worker", {})]]), handoffs=[worker])
        return lead, govern(governed, lead)

    async def run(self, agent):
        ran = await Runner.run(agent[0], "go", hooks=agent[1], run_config=NO_TRACES)
        return told(ran)

    async def stream(self, agent):
        ran = Runner.run_streamed(agent[0], "go", hooks=agent[1], run_config=NO_TRACES)
        async for _ in ran.stream_events():
            pass
        return told(ran)

    def run_sync(self, agent):
        return told(Runner.run_sync(agent[0], "go", hooks=agent[1], run_config=NO_TRACES))

    def injecting(self, got):
        def pay(context: RunContextWrapper[Any], amount: int) -> str:
            """Pay an amount."""
            return got.keep({"amount": amount, "context": context})

        return "context", pay


def told(ran):
    """Return what tools told the model."""
    return json.dumps([item for item in ran.to_input_list() if item.get("type") == "function_call_output"])


@pytest.fixture
def governed(program_guard):
    """Give the guard of a workspace that allows unknown tools."""
    return program_guard("allow")


@function_tool(failure_error_function=None)
def send(text: str) -> str:
    """Send a text."""
    raise ZeroDivisionError(text)


def test_failure_of_a_tool_is_recorded(governed):
    agent = Agent(name="worker", model=fake([[("send", {"text": "a"})]]), tools=[send])
    hooks = govern(governed, agent)
    with pytest.raises(Exception, match="a"):
        asyncio.run(Runner.run(agent, "go", hooks=hooks, run_config=NO_TRACES))
    governed.close()
    (place,) = (governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl")
    (error,) = [event.payload for event in read(place) if event.type == "tool.error"]
    assert "ZeroDivisionError: a" in error["message"]


def test_tool_added_later_stops_the_run(governed):
    """The hooks are the second line: nothing that `govern` has not seen runs."""
    done = []

    @function_tool
    def late(text: str) -> str:
        """Come late."""
        done.append(text)
        return text

    agent = Agent(name="worker", model=fake([[("late", {"text": "a"})]]))
    hooks = govern(governed, agent)
    agent.tools.append(late)
    with pytest.raises(Exception, match="not governed"):
        asyncio.run(Runner.run(agent, "go", hooks=hooks, run_config=NO_TRACES))
    assert done == []


def test_usage_and_instructions_are_recorded(governed):
    agent = Agent(name="worker", instructions="Be brief.", model=fake([]))
    asyncio.run(Runner.run(agent, "go", hooks=govern(governed, agent), run_config=NO_TRACES))
    found = {event.type: event.payload for event in read_events(governed)}
    sent = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]
    assert found["llm.request"]["request"]["messages"] == sent
    assert found["llm.response"]["response"]["usage"] == {"input_tokens": 7, "output_tokens": 3}


def test_request_of_a_run_that_is_over_is_closed_by_the_next_one(governed):
    """The SDK calls no hook if a model fails, so the outcome is unknown."""
    agent = Agent(name="worker", model=ScriptedModel([ValueError("down"), [assistant_message("done")]]))
    hooks = govern(governed, agent)
    with pytest.raises(ValueError, match="down"):
        asyncio.run(Runner.run(agent, "go", hooks=hooks, run_config=NO_TRACES))
    gc.collect()
    asyncio.run(Runner.run(agent, "go", hooks=hooks, run_config=NO_TRACES))
    kinds = [event.type for event in read_events(governed) if event.type.startswith("llm.")]
    assert kinds == ["llm.request", "llm.error", "llm.request", "llm.response"]


def test_requests_of_an_agent_that_is_a_tool_are_recorded(governed):
    """Run hooks are not called for it, and the agent keeps its own hooks."""
    called = []

    class Own(AgentHooks):
        async def on_llm_start(self, *_args):
            called.append("llm")

        async def on_start(self, *_args):
            called.append("start")

    inner = Agent(name="inner", model=fake([]), hooks=Own())
    outer = Agent(name="outer", model=fake([[("ask", {"input": "a"})]]), tools=[inner.as_tool("ask", "Ask.")])
    govern(governed, outer)
    asyncio.run(Runner.run(outer, "go", run_config=NO_TRACES))
    assert called == ["start", "llm"]
    kinds = [event.type for event in read_events(governed) if event.type.startswith("llm.")]
    assert kinds.count("llm.request") == kinds.count("llm.response") == 3


def test_agent_made_while_a_run_goes_on_asks_no_model(governed):
    asked = []
    first = Agent(name="first", model=fake([]))
    hooks = govern(governed, first)
    late = Agent(name="late", model=fake([], lambda: asked.append(1)))
    with pytest.raises(BindingError, match="not governed"):
        asyncio.run(Runner.run(late, "go", hooks=hooks, run_config=NO_TRACES))
    assert asked == []


def test_answer_without_its_request_is_noted(governed):
    """A run that paused in another process goes on here."""
    agent = Agent(name="worker")
    govern(governed, agent)
    response = ModelResponse(output=[assistant_message("hi")], usage=Usage(), response_id=None)
    asyncio.run(agent.hooks.on_llm_end(RunContextWrapper(None), agent, response))
    assert "ModelResponse" in [event.payload.get("event") for event in read_events(governed)]


@pytest.fixture
def asking(tmp_path):
    """Give the guard of a workspace that asks a person about every tool but `look`."""
    (tmp_path / ".system").mkdir()
    text = """
schema_version: v1
agents: {crew: {kind: program, unknown_tools: ask, tools: {look: {effects: read}}}}
policies: {p: {kind: rules, rules: [{match: {abilities: [crew/look]}, then: allow}], default: ask}}
"""
    (tmp_path / ".system/deedbook.yaml").write_text(text)
    with guard("crew", workspace=tmp_path) as made:
        yield made


def test_call_that_needs_a_person_pauses_the_run(asking):
    """A resumed run is judged again: the SDK's own yes is no signed approval. Other calls of the answer run once."""
    done = []

    @function_tool
    def look(text: str) -> str:
        """Look."""
        done.append(text)
        return text

    @function_tool
    def act(text: str) -> str:
        """Act."""
        done.append(text)
        return text

    model = fake([[("look", {"text": "a"}), ("act", {"text": "b"})]])
    agent = Agent(name="worker", model=model, tools=[look, act])
    hooks = govern(asking, agent, pause=True)
    ran = asyncio.run(Runner.run(agent, "go", hooks=hooks, run_config=NO_TRACES))
    (item,) = ran.interruptions
    assert hooks.pending[item.raw_item.call_id].approval
    state = ran.to_state()
    state.approve(item)
    again = asyncio.run(Runner.run(agent, state, hooks=hooks, run_config=NO_TRACES))
    assert "NEEDS_HUMAN" in told(again)
    assert done == ["a"]
    kinds = [event.type for event in read_events(asking) if event.type.startswith("tool.")]
    assert kinds.count("tool.call") == kinds.count("tool.result") == 1


def test_local_tool_that_is_no_function_is_refused(governed):
    agent = Agent(name="worker", tools=[ShellTool(executor=lambda _: "")])
    with pytest.raises(BindingError, match="ShellTool acts here"):
        govern(governed, agent)


def test_agent_used_as_a_tool_is_governed(governed):
    inner = Agent(name="inner", tools=[send])
    outer = Agent(name="outer", tools=[inner.as_tool("ask", "Ask.")])
    govern(governed, outer)
    assert type(inner.tools[0].on_invoke_tool).__name__ == "GovernedInvocation"
    assert type(outer.tools[0].on_invoke_tool).__name__ == "GovernedInvocation"


def test_version_that_is_not_tested_is_refused(governed, monkeypatch):
    monkeypatch.setattr("deedbook_adapter_openai_agents.LEAST", "9.0")
    with pytest.raises(BindingError, match="is tested with openai-agents"):
        govern(governed, Agent(name="worker"))


def test_tools_of_all_reachable_agents_are_listed_and_defaults_are_not_required():
    """The SDK's strict form requires every argument; a model of another provider may leave out those with a default."""

    @function_tool
    def refund(order: str, amount: int = 10, note: str | None = None) -> str:
        """Refund an order."""
        return f"{order} {amount} {note}"

    desk = Agent(name="desk", tools=[refund, WebSearchTool()])
    listed = list_tools(Agent(name="front", handoffs=[desk], tools=[desk.as_tool("ask_desk", "Ask the desk.")]))
    tools = {each.name: each for each in listed.tools}
    assert set(tools) == {"refund", "ask_desk"}
    assert tools["refund"].input_schema["required"] == ["order"]
    assert listed.unlisted == ("agent 'desk': WebSearchTool is no function tool",)
