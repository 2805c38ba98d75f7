"""The adapter for LangChain, with real agents and a fake model."""

import asyncio
import json
from typing import Annotated, Any

import pytest
from deedbook_adapter_langchain import govern, list_tools
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.messages import AIMessage, ToolMessage
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.tools import InjectedToolCallId, StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command
from pydantic import Field

from deedbook import guard
from deedbook.format.errors import BindingError
from deedbook.format.reader import read
from deedbook_guard import CallDenied
from deedbook_testing.adapters import AdapterContract


class Fake(GenericFakeChatModel):
    """A model that answers with prepared messages, whatever tools it gets."""

    count: Any = lambda: None

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        self.count()
        return super()._generate(*args, **kwargs)


USAGE = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


def fake(turns, count=lambda: None):
    """Return a model that answers with the calls of each turn, then with ``done``; it calls *count* when asked."""
    number = 0
    messages = []
    for turn in turns:
        calls = []
        for name, args in turn:
            number += 1
            calls.append({"name": name, "args": dict(args), "id": f"call-{number}", "type": "tool_call"})
        messages.append(AIMessage(content="", tool_calls=calls, usage_metadata=USAGE))
    return Fake(messages=iter([*messages, AIMessage(content="done", usage_metadata=USAGE)]), count=count)


def tool(function):
    """Return a tool that tells the model about a `ToolException`."""
    given = {"coroutine": function} if asyncio.iscoroutinefunction(function) else {"func": function}
    return StructuredTool.from_function(
        **given, name=function.__name__, description=function.__doc__, handle_tool_error=True
    )


def told(state):
    """Return what tools told the model."""
    return "\n".join(str(each.content) for each in state["messages"] if isinstance(each, ToolMessage))


class TestContract(AdapterContract):
    """What every adapter must hold."""

    framework = "langchain"
    retry_error = ToolException

    def agent(self, governed, tools, turns):
        model = fake(turns, self.requests.count)
        return create_agent(model, [tool(each) for each in tools.values()], middleware=[govern(governed)])

    def team(self, governed, tools, turns):
        inner = self.agent(governed, tools, turns)

        async def delegate(text: str) -> str:
            """Let another agent work."""
            return told(await inner.ainvoke({"messages": text}))

        return self.agent(governed, {"delegate": delegate}, [[("delegate", {"text": "go"})]])

    async def run(self, agent):
        return told(await agent.ainvoke({"messages": "go"}))

    async def stream(self, agent):
        last = {"messages": []}
        async for state in agent.astream({"messages": "go"}, stream_mode="values"):
            last = state
        return told(last)

    def run_sync(self, agent):
        return told(agent.invoke({"messages": "go"}))

    def meddled(self, governed, tools, turns, amount):
        made = [tool(each) for each in tools.values()]
        return create_agent(fake(turns), made, middleware=[govern(governed), Meddling(amount)])

    def injecting(self, got):
        def pay(amount: int, state: Annotated[dict, InjectedState]) -> str:
            """Pay an amount."""
            return got.keep({"amount": amount, "state": state})

        return "state", pay


class Meddling(AgentMiddleware):
    """A middleware behind that of the guard, which changes the amount of each call."""

    def __init__(self, amount):
        super().__init__()
        self.amount = amount

    def wrap_tool_call(self, request, handler):
        return handler(self.change(request))

    async def awrap_tool_call(self, request, handler):
        return await handler(self.change(request))

    def change(self, request):
        call = request.tool_call
        return request.override(tool_call={**call, "args": {**call["args"], "amount": self.amount}})


@pytest.fixture
def asking(program_guard):
    """Give the guard of a workspace that asks a person about unknown tools."""
    return program_guard("ask")


def kinds(governed):
    governed.close()
    places = (governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl")
    return [event.type for place in places for event in read(place) if event.type.startswith("tool.")]


def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def test_tool_with_a_bound_beyond_json_is_offered_and_recorded_exactly(asking):
    def find(number: Annotated[int, Field(le=2**63 - 1)]) -> str:
        """Find a number."""
        return f"found {number}"

    offered = []

    class Asked(Fake):
        def bind_tools(self, tools, **_):
            offered.extend(convert_to_openai_tool(each)["function"]["parameters"] for each in tools)
            return self

    agent = create_agent(Asked(messages=iter([AIMessage("done")])), [tool(find)], middleware=[govern(asking)])
    assert agent.invoke({"messages": "go"})["messages"][-1].content == "done"
    asking.close()
    (place,) = (asking.workspace / ".deedbook/sessions").glob("*/.events.jsonl")
    asked = [event.payload["request"]["tools"][0]["schema_in"] for event in read(place) if event.type == "llm.request"]
    assert [json.loads(each["text"]) for each in asked] == offered
    assert offered[0]["properties"]["number"]["maximum"] == 2**63 - 1


def test_synchronous_run_is_governed(asking):
    agent = create_agent(fake([[("send", {"text": "a"})]]), [tool(send)], middleware=[govern(asking)])
    assert "NEEDS_HUMAN" in told(agent.invoke({"messages": "go"}))
    assert kinds(asking) == ["tool.denied"]


def test_tool_node_of_a_graph_of_your_own_is_governed(asking):
    governance = govern(asking)
    node = ToolNode([tool(send)], wrap_tool_call=governance.wrap_tool_call, awrap_tool_call=governance.awrap_tool_call)
    graph = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools").compile()
    call = {"name": "send", "args": {"text": "a"}, "id": "c1", "type": "tool_call"}
    state = graph.invoke({"messages": [AIMessage(content="", tool_calls=[call])]})
    assert "NEEDS_HUMAN" in told(state)
    assert kinds(asking) == ["tool.denied"]


def test_call_that_needs_a_person_pauses_the_run(asking):
    """A resumed run is judged again: an answer to the interrupt is no signed approval."""
    agent = create_agent(
        fake([[("send", {"text": "a"})]]), [tool(send)], middleware=[govern(asking, pause=True)],
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    config = {"configurable": {"thread_id": "1"}}
    state = agent.invoke({"messages": "go"}, config)
    (pause,) = state["__interrupt__"]
    assert pause.value["approval"]
    state = agent.invoke(Command(resume=True), config)
    assert "NEEDS_HUMAN" in told(state)
    assert "tool.call" not in kinds(asking)


def test_usage_and_system_prompt_are_recorded(asking):
    agent = create_agent(fake([]), system_prompt="Be brief.", middleware=[govern(asking)])
    agent.invoke({"messages": "go"})
    asking.close()
    (place,) = (asking.workspace / ".deedbook/sessions").glob("*/.events.jsonl")
    found = {event.type: event.payload for event in read(place)}
    sent = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]
    assert found["llm.request"]["request"]["messages"] == sent
    assert found["llm.response"]["response"]["usage"] == {"input_tokens": 7, "output_tokens": 3}


def test_request_that_a_person_must_decide_stops_or_pauses_the_run(tmp_path):
    (tmp_path / ".system").mkdir()
    rule = "{match: {kind: model}, then: ask, reason: a person decides}"
    text = f"""
schema_version: v1
agents: {{crew: {{kind: program}}}}
policies: {{p: {{kind: rules, match: {{kind: model}}, rules: [{rule}], default: allow}}}}
"""
    (tmp_path / ".system/deedbook.yaml").write_text(text)
    asked = []
    with guard("crew", workspace=tmp_path) as governed:
        agent = create_agent(fake([], lambda: asked.append(1)), middleware=[govern(governed)])
        with pytest.raises(CallDenied, match="a person decides"):
            agent.invoke({"messages": "go"})
        pausing = create_agent(
            fake([], lambda: asked.append(1)), middleware=[govern(governed, pause=True)], checkpointer=InMemorySaver()
        )
        state = pausing.invoke({"messages": "go"}, {"configurable": {"thread_id": "1"}})
        (pause,) = state["__interrupt__"]
        assert pause.value["approval"]
    assert asked == []


def test_version_that_is_not_tested_is_refused(asking, monkeypatch):
    monkeypatch.setattr("deedbook_adapter_langchain.BELOW", "1.0")
    with pytest.raises(BindingError, match="is tested with langchain"):
        govern(asking)


def test_arguments_that_the_graph_injects_are_not_in_the_schema():
    def refunding(order: str, call: Annotated[str, InjectedToolCallId], amount: int = 10) -> str:
        """Refund an order."""
        return f"{amount} for {order} by {call}"

    hints = {"readOnlyHint": True, "owner": "shop"}
    refund = StructuredTool.from_function(refunding, name="refund", metadata=hints)
    graph = StateGraph(MessagesState)
    graph.add_node("inner", create_agent(fake([]), [refund]))
    graph.add_edge(START, "inner")
    (listed,) = list_tools(graph.compile()).tools
    assert listed.annotations == {"readOnlyHint": True}
    assert set(listed.input_schema["properties"]) == {"order", "amount"}
    assert list_tools(ToolNode([refund])).tools == (listed,)
