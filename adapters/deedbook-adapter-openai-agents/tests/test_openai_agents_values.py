"""Function tools of the OpenAI Agents SDK of every kind: what is judged and recorded is what the tool gets."""

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from agents import Agent, FunctionTool, RunConfig, RunContextWrapper, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from deedbook_adapter_openai_agents import govern
from pydantic import BaseModel, Field, field_validator

from deedbook import guard
from deedbook.format.reader import read
from deedbook_testing.soundness import assert_sound

RULES = """
schema_version: v1
agents: {crew: {kind: program, unknown_tools: deny, tools: {pay: {effects: write}, look: {effects: read}}}}
policies:
  baseline:
    kind: rules
    rules:
      - {match: {abilities: [crew/pay], args: {/amount: {min: 101}}}, then: deny, reason: more than 100}
      - {match: {abilities: [crew/pay], args: {/Amount: {min: 101}}}, then: deny, reason: more than 100}
    default: allow
"""
DONE = []


@pytest.fixture(autouse=True)
def done():
    """Give what the tools of a test did."""
    DONE.clear()
    return DONE


@pytest.fixture
def governed(tmp_path):
    """Give the guard of a workspace that denies amounts above 100."""
    (tmp_path / ".system").mkdir()
    (tmp_path / ".system/deedbook.yaml").write_text(RULES)
    with guard("crew", workspace=tmp_path) as made:
        yield made


def run(governed, tool, *args, name="pay", pause=False):
    """Let a model ask for calls with *args*; return what it was told."""
    asked = [[function_call(name, each, call_id=f"c{number}")] for number, each in enumerate(args)]
    agent = Agent(name="worker", model=ScriptedModel([*asked, [assistant_message("done")]]), tools=[tool])
    hooks = govern(governed, agent, pause=pause)
    ran = asyncio.run(Runner.run(agent, "go", hooks=hooks, run_config=RunConfig(tracing_disabled=True)))
    return "\n".join(str(each["output"]) for each in ran.to_input_list() if each.get("type") == "function_call_output")


def recorded(governed):
    """Return the events of tools, by type and payload."""
    governed.close()
    assert_sound(governed.workspace)
    places = (governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl")
    return [(event.type, event.payload) for place in places for event in read(place) if event.type.startswith("tool.")]


def intents(governed):
    return [payload["args"] for kind, payload in recorded(governed) if kind == "tool.call"]


def test_tool_that_takes_the_json_of_the_model_gets_what_was_judged(governed):
    """A key that is named twice, and spaces, have one meaning: that of the JSON that is handed over."""

    async def invoke(_context, text):
        DONE.append(text)
        return "paid"

    tool = FunctionTool(name="pay", description="Pay.", params_json_schema={"type": "object"}, on_invoke_tool=invoke)
    told = run(governed, tool, '{"amount": 500, "amount": 5}', '{"amount": 5, "amount": 500}', "[5]")
    assert "more than 100" in told
    assert "INTAKE_REFUSED" in told
    assert [json.loads(each) for each in DONE] == [{"amount": 5}]
    assert intents(governed) == [{"amount": 5}]


@dataclass
class Payment:
    """What an agent that is a tool is asked for."""

    amount: int = 500


def test_agent_that_is_a_tool_is_judged_by_its_validated_parameters(governed):
    seen = []

    class Asked(ScriptedModel):
        async def get_response(self, **asked):
            seen.append(asked["input"])
            return await super().get_response(**asked)

    inner = Agent(name="inner", model=Asked([[assistant_message("paid")]]))
    tool = inner.as_tool("pay", "Pay.", parameters=Payment)
    told = run(governed, tool, {"amount": "500"}, {}, {"amount": " 50 "})
    assert told.count("more than 100") == 2
    assert len(seen) == 1
    assert "50" in str(seen)
    assert intents(governed) == [{"amount": 50}]


def test_arguments_that_the_sdk_refuses_reach_no_tool_and_are_no_call(governed):
    """Also if its validation would accept them the second time."""
    tries = []

    class Once(BaseModel):
        amount: int

        @field_validator("amount")
        @classmethod
        def _once(cls, value):
            tries.append(value)
            if len(tries) == 1:
                raise ValueError("not yet")
            return value

    def pay(payment: Once) -> str:
        """Pay."""
        DONE.append(payment.amount)
        return "paid"

    told = run(governed, function_tool(pay), {"payment": {"amount": 5}})
    assert "error" in told.lower()
    assert DONE == []
    assert tries == [5]
    assert recorded(governed) == []


def test_validation_that_changes_with_each_try_runs_once(governed):
    class Doubling(BaseModel):
        amount: int

        @field_validator("amount")
        @classmethod
        def _double(cls, value):
            return value * 2

    def pay(payment: Doubling) -> str:
        """Pay."""
        DONE.append(payment.amount)
        return "paid"

    run(governed, function_tool(pay), {"payment": {"amount": 5}})
    assert DONE == [10]
    assert intents(governed) == [{"payment": {"amount": 10}}]


def test_decision_before_a_pause_is_about_the_values_that_the_tool_gets(governed):
    """With ``pause``, the SDK asks before it invokes the tool; a default factory is called once for both."""
    made = iter(range(1, 100))

    def pay(number: Annotated[int, Field(default_factory=lambda: next(made))], amount: int = 5) -> str:
        """Pay."""
        DONE.append((number, amount))
        return "paid"

    told = run(governed, function_tool(pay), {}, {"amount": "500"}, {"number": "7"}, pause=True)
    assert "more than 100" in told
    assert DONE == [(1, 5), (7, 5)]
    assert intents(governed) == [{"number": 1, "amount": 5}, {"number": 7, "amount": 5}]


def test_positional_keyword_and_further_arguments_are_judged_by_name(governed):
    def pay(context: RunContextWrapper[Any], first: int, *rest: int, amount: int = 500, **more: int) -> str:
        """Pay."""
        DONE.append((first, rest, amount, more))
        return "paid"

    tool = function_tool(pay, strict_mode=False)
    sent = {"first": "1", "rest": ["2", 3], "more": {"tip": "4"}}
    assert "more than 100" in run(governed, tool, sent, {**sent, "amount": "50"})
    assert DONE == [(1, (2, 3), 50, {"tip": 4})]
    assert intents(governed) == [{"first": 1, "rest": [2, 3], "amount": 50, "more": {"tip": 4}}]


def test_aliases_are_judged_by_the_names_that_the_model_sees(governed):
    class Part(BaseModel):
        count: int = Field(alias="howMany")

    def pay(part: Part, amount: int = 5) -> str:
        """Pay."""
        DONE.append((part.count, amount))
        return "paid"

    run(governed, function_tool(pay, strict_mode=False), {"part": {"howMany": "2"}})
    assert DONE == [(2, 5)]
    assert intents(governed) == [{"part": {"howMany": 2}, "amount": 5}]


def test_copy_of_a_governed_tool_is_judged_and_no_other_function_takes_its_place(governed):
    def pay(amount: int = 500) -> str:
        """Pay."""
        DONE.append(amount)
        return "paid"

    agent = Agent(name="worker", tools=[function_tool(pay)])
    hooks = govern(governed, agent)
    (tool,) = agent.tools
    agent.tools = [replace(tool, name="pay")]
    agent.model = ScriptedModel([[function_call("pay", {}, call_id="c1")], [assistant_message("done")]])
    ran = asyncio.run(Runner.run(agent, "go", hooks=hooks, run_config=RunConfig(tracing_disabled=True)))
    assert "more than 100" in str(ran.to_input_list())
    assert DONE == []


def test_time_limit_of_a_tool_leaves_no_open_call(governed):
    async def pay(amount: int) -> str:
        """Pay."""
        DONE.append(amount)
        await asyncio.Event().wait()
        return "paid"

    tool = function_tool(pay, timeout=0.5)
    assert "timed out" in run(governed, tool, {"amount": "5"})
    found = recorded(governed)
    assert [kind for kind, _ in found] == ["tool.call", "tool.error"]
    assert found[1][1]["outcome"] == "cancelled"


def test_list_that_others_hold_is_not_the_one_that_the_tool_gets(governed):
    """A function that says whether a call needs an approval gets the raw arguments, and may keep them."""
    held = []

    async def asks(_context, args, _call_id):
        held.append(args["parts"])
        return False

    def look(parts: list[int]) -> str:
        """Look."""
        held[0].append(2)
        DONE.append(parts)
        return "seen"

    run(governed, function_tool(look, needs_approval=asks), {"parts": ["1"]}, name="look")
    assert DONE == [[1]]
    assert intents(governed) == [{"parts": [1]}]


def test_coroutine_that_a_function_returns_is_not_run_after_the_record(governed):
    def pay(amount: int) -> Any:
        """Pay."""

        def later():
            DONE.append(amount)
            yield "paid"

        return later()

    run(governed, function_tool(pay), {"amount": 5})
    assert DONE == []
    recorded(governed)
