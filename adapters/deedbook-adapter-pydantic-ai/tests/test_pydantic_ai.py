"""The adapter for Pydantic AI, with real agents and a fake model."""

import asyncio
import json
from datetime import date, timedelta
from typing import Annotated, Literal

import pytest
from deedbook_adapter_pydantic_ai import govern, list_tools
from pydantic import BaseModel, Field
from pydantic_ai import Agent, DeferredToolRequests, ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ImageUrl, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

from deedbook import guard
from deedbook.format.reader import read
from deedbook_guard.adoption.changes import plan, write
from deedbook_testing.adapters import AdapterContract


def fake(turns, count=lambda: None):
    """Return a model that answers with the calls of each turn, then with ``done``; it calls *count* when asked."""
    left = [list(turn) for turn in turns]

    def answer(_messages, _info):
        count()
        if not left:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(name, dict(args)) for name, args in left.pop(0)])

    async def stream(_messages, _info):
        count()
        if not left:
            yield "done"
            return
        for number, (name, args) in enumerate(left.pop(0)):
            yield {number: DeltaToolCall(name=name, json_args=json.dumps(dict(args)))}

    return FunctionModel(answer, stream_function=stream)


def told(result):
    """Return what tools told the model."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return "\n".join(str(part.content) for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart))


class TestContract(AdapterContract):
    """What every adapter must hold."""

    framework = "pydantic-ai"
    retry_error = ModelRetry

    def agent(self, governed, tools, turns):
        return Agent(fake(turns, self.requests.count), tools=list(tools.values()), capabilities=[govern(governed)])

    def team(self, governed, tools, turns):
        inner = self.agent(governed, tools, turns)

        async def delegate(text: str) -> str:
            """Let another agent work."""
            return str((await inner.run(text)).output)

        return self.agent(governed, {"delegate": delegate}, [[("delegate", {"text": "go"})]])

    async def run(self, agent):
        return told(await agent.run("go"))

    async def stream(self, agent):
        async with agent.run_stream("go") as result:
            async for _ in result.stream_text():
                pass
            return told(result)

    def run_sync(self, agent):
        return told(agent.run_sync("go"))

    def meddled(self, governed, tools, turns, amount):
        behind = [govern(governed), Meddling(amount)]
        return Agent(fake(turns), tools=list(tools.values()), capabilities=behind)

    def injecting(self, got):
        def pay(context: RunContext[None], amount: int) -> str:
            """Pay an amount."""
            return got.keep({"amount": amount, "context": context})

        return "context", pay


class Meddling(AbstractCapability):
    """Another capability, which changes the amount of each call as late as it can."""

    def __init__(self, amount):
        self.amount = amount

    async def before_tool_execute(self, ctx, *, call, tool_def, args):
        return {**args, "amount": self.amount}


@pytest.fixture
def asking(program_guard):
    """Give the guard of a workspace that asks a person about unknown tools."""
    return program_guard("ask")


def test_call_that_needs_a_person_pauses_the_run(asking):
    """A resumed run is judged again: the framework's own yes is no signed approval."""
    done = []

    def send(text: str) -> str:
        done.append(text)
        return text

    agent = Agent(
        fake([[("send", {"text": "a"})]]), tools=[send], capabilities=[govern(asking, pause=True)],
        output_type=[str, DeferredToolRequests],
    )  # fmt: skip
    result = asyncio.run(agent.run("go"))
    assert isinstance(result.output, DeferredToolRequests)
    (call,) = result.output.approvals
    assert result.output.metadata[call.tool_call_id]["approval"]
    from pydantic_ai import DeferredToolResults

    yes = DeferredToolResults(approvals={call.tool_call_id: True})
    again = asyncio.run(agent.run(message_history=result.all_messages(), deferred_tool_results=yes))
    assert isinstance(again.output, DeferredToolRequests)
    assert done == []


def test_instructions_and_prompt_are_in_the_request(asking):
    agent = Agent(fake([]), instructions="Be brief.", capabilities=[govern(asking)])
    asyncio.run(agent.run(["Look:", ImageUrl("https://example.com/a.png")], model_settings={"temperature": 0.5}))
    asking.close()
    (place,) = (asking.workspace / ".deedbook/sessions").glob("*/.events.jsonl")
    (asked,) = [event.payload["request"] for event in read(place) if event.type == "llm.request"]
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look:\n[image-url]"},
    ]
    assert asked["temperature"] == 0.5


def test_tool_with_a_bound_beyond_json_is_offered_and_recorded_exactly(asking):
    """The model gets the framework's own schema; the record has its text, since no ledger line holds the bound."""
    offered = []

    def find(number: Annotated[int, Field(le=2**63 - 1)]) -> str:
        return f"found {number}"

    def answer(_messages, info):
        offered.append(info.function_tools[0].parameters_json_schema)
        return ModelResponse(parts=[TextPart("done") if len(offered) > 1 else ToolCallPart("find", {"number": 7})])

    settings = asking.workspace / ".system/deedbook.yaml"
    settings.write_text(settings.read_text().replace("unknown_tools: ask", "unknown_tools: allow"))
    with guard("crew", workspace=asking.workspace, profile="local") as governed:
        result = asyncio.run(Agent(FunctionModel(answer), tools=[find], capabilities=[govern(governed)]).run("go"))
    assert told(result) == "found 7"
    (place,) = (asking.workspace / ".deedbook/sessions").glob("*/.events.jsonl")
    asked = [event.payload["request"]["tools"][0]["schema_in"] for event in read(place) if event.type == "llm.request"]
    assert [json.loads(each["text"]) for each in asked] == offered
    assert offered[0]["properties"]["number"]["maximum"] == 2**63 - 1


def test_version_that_is_not_tested_is_refused(asking, monkeypatch):
    from deedbook.format.errors import BindingError

    monkeypatch.setattr("deedbook_adapter_pydantic_ai.BELOW", "2.0")
    with pytest.raises(BindingError, match="is tested with pydantic-ai-slim"):
        govern(asking)


class Item(BaseModel):
    """An ordered thing, which may contain others."""

    name: str
    count: int = 1
    parts: list["Item"] = []


def order(item: Item) -> str:
    """Order an item."""
    return item.name


def plan_for(day: date, tags: set[str], span: timedelta, raw: bytes, colour: Literal["red", "blue"] = "red") -> str:
    """Plan something."""
    return f"{day} {sorted(tags)} {span} {raw!r} {colour}"


def test_adopted_schemas_fit_the_arguments_as_pydantic_validates_them(tmp_path):
    """A function whose only parameter is a model gets that model, though the model's members are its schema."""
    calls = [
        ("order", {"name": "a", "parts": [{"name": "b"}]}),
        ("plan_for", {"day": "2026-01-02", "tags": ["x", "y"], "span": "P1DT1S", "raw": "é"}),
    ]
    tools = [order, plan_for]
    listed = list_tools(Agent(fake([]), tools=tools))
    changes, notes = plan(tmp_path, "crew", listed.tools)
    assert notes == []
    write(tmp_path, changes)
    with guard("crew", workspace=tmp_path) as governed:
        agent = Agent(fake([calls]), tools=tools, capabilities=[govern(governed)])
        said = told(asyncio.run(agent.run("go")))
    assert said.splitlines() == ["a", "2026-01-02 ['x', 'y'] 1 day, 0:00:01 b'\\xc3\\xa9' red"]


def test_tools_of_other_toolsets_are_listed_as_far_as_they_are_known():
    inner = FunctionToolset([order])
    agent = Agent(fake([]), tools=[plan_for], toolsets=[inner.prefixed("shop"), ExternalToolset([])])
    listed = list_tools(agent)
    assert [tool.name for tool in listed.tools] == ["plan_for", "shop_order"]
    assert ["ExternalToolset" in each for each in listed.unlisted] == [True]
