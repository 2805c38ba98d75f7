"""The adapter for the OpenAI Agents SDK, with real agents and the SDK's scripted model."""

import asyncio
import itertools
import json

import pytest
from agents import Agent, RunConfig, Runner, ShellTool, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from deedbook_adapter_openai_agents import govern

from deedbook import guard
from deedbook.format.errors import BindingError
from deedbook.format.reader import read
from deedbook_testing.adapters import AdapterContract

NO_TRACES = RunConfig(tracing_disabled=True)
numbers = itertools.count()


def fake(turns):
    """Return a model that answers with the calls of each turn, then with ``done``."""
    calls = [[function_call(name, dict(args), call_id=f"c{next(numbers)}") for name, args in turn] for turn in turns]
    return ScriptedModel([*calls, [assistant_message("done")]])


class TestContract(AdapterContract):
    """What every adapter must hold."""

    retry_error = ValueError

    def agent(self, governed, tools, turns):
        made = Agent(name="worker", model=fake(turns), tools=[function_tool(each) for each in tools.values()])
        return made, govern(governed, made)

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


def told(ran):
    """Return what tools told the model."""
    return json.dumps([item for item in ran.to_input_list() if item.get("type") == "function_call_output"])


@pytest.fixture
def governed(tmp_path):
    """Give the guard of a workspace that allows unknown tools."""
    (tmp_path / ".system").mkdir()
    text = "schema_version: v1\nagents: {crew: {kind: program, unknown_tools: allow}}\n"
    (tmp_path / ".system/deedbook.yaml").write_text(text)
    with guard("crew", workspace=tmp_path) as made:
        yield made


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
