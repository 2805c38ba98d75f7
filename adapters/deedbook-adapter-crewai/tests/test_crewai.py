"""The adapter for CrewAI, with real crews and a fake model."""

import asyncio
import json
import os
from typing import Any

import pytest

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")

from crewai import Agent, BaseLLM, Crew, Process, Task
from crewai.events.types.llm_events import LLMCallType
from crewai.hooks import HookAborted, register_before_llm_call_hook, register_before_tool_call_hook
from crewai.hooks.dispatch import clear_all
from crewai.tools import BaseTool
from crewai.tools import tool as make_tool
from crewai.tools.tool_failure import ToolFailure
from deedbook_adapter_crewai import govern

from deedbook.format.errors import BindingError
from deedbook.format.reader import read
from deedbook_testing.adapters import AdapterContract


class Fake(BaseLLM):
    """A model that answers with the calls of each turn, then with ``done``; it calls *count* when asked."""

    turns: list[Any] = []
    count: Any = lambda: None
    native: bool = True

    def supports_function_calling(self):
        return self.native

    def call(self, messages, tools=None, *args, **kwargs):
        self.count()
        answer = "done" if self.native else "Thought: I know.\nFinal Answer: done"
        if self.turns and self.native:
            answer = [
                {"id": f"call-{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
                for number, (name, args) in enumerate(self.turns.pop(0))
            ]
        elif self.turns:
            ((name, args),) = self.turns.pop(0)
            answer = f"Thought: I call it.\nAction: {name}\nAction Input: {json.dumps(args)}"
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        self._emit_call_completed_event(
            response=answer, call_type=LLMCallType.LLM_CALL, usage=usage, finish_reason="stop"
        )
        return answer

    async def acall(self, messages, tools=None, *args, **kwargs):
        return Fake.call(self, messages, tools)


def crew_of(agent, text="go"):
    task = Task(description=text, expected_output="an answer", agent=agent)
    return Crew(agents=[agent], tasks=[task])


def agent_of(tools, turns=(), count=lambda: None, native=True, role="crew", **more):
    model = Fake(model="fake", turns=[list(turn) for turn in turns], count=count, native=native)
    return Agent(role=role, goal="work", backstory="none", llm=model, tools=list(tools), **more)


def told(crew):
    """Return what tools told the model."""
    messages = crew.agents[0].agent_executor.messages
    return "\n".join(str(each["content"]) for each in messages if each["role"] == "tool")


class TestContract(AdapterContract):
    """What every adapter must hold."""

    framework = "crewai"
    retry_error = ValueError
    cancels_tools = False

    def agent(self, governed, tools, turns):
        made = [make_tool(name)(function) for name, function in tools.items()]
        return govern(governed, crew_of(agent_of(made, turns, self.requests.count)))

    def team(self, governed, tools, turns):
        inner = self.agent(governed, tools, turns)

        def delegate(text: str) -> str:
            """Let another agent work."""
            inner.kickoff()
            return told(inner)

        return self.agent(governed, {"delegate": delegate}, [[("delegate", {"text": "go"})]])

    async def run(self, agent):
        await agent.akickoff()
        return told(agent)

    async def stream(self, agent):
        agent.stream = True
        async for _ in await agent.akickoff():
            pass
        return told(agent)


def sessions(governed):
    governed.close()
    places = (governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl")
    return {place.parent.name: list(read(place)) for place in places}


def events(governed):
    return [event for session in sessions(governed).values() for event in session]


def kinds(governed):
    return [event.type for event in events(governed) if event.type.startswith(("tool.", "llm."))]


def send_to(done):
    @make_tool("send")
    def send(text: str, times: int = 1) -> str:
        """Send a text."""
        done.append(text)
        return f"sent {text}"

    return send


SEND = [[("send", {"text": "a"})]]
ASKED = ["llm.request", "llm.response"]


def test_usage_prompt_and_tools_are_recorded(program_guard):
    governed = program_guard()
    govern(governed, crew_of(agent_of([send_to([])], SEND))).kickoff()
    found = events(governed)
    requests = [event.payload["request"] for event in found if event.type == "llm.request"]
    answers = [event.payload["response"] for event in found if event.type == "llm.response"]
    (call,) = [event.payload for event in found if event.type == "tool.call"]
    assert answers[1] == {**answers[1], "text": "done", "usage": {"input_tokens": 7, "output_tokens": 3}}
    assert [each["role"] for each in requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert requests[0]["tools"][0]["schema_in"]["properties"].keys() == {"text", "times"}
    assert call["args"]["input"] == {"text": "a", "times": 1}
    assert [e.type for e in found if e.type.startswith(("tool.", "llm."))] == [
        *ASKED,
        "tool.call",
        "tool.result",
        *ASKED,
    ]


@pytest.mark.parametrize("way", ["kickoff", "akickoff", "agent"])
@pytest.mark.parametrize("native", [True, False], ids=["native", "text"])
def test_each_way_to_call_a_tool_is_governed_in_its_conversation(program_guard, native, way):
    """The framework runs tools in threads, and some of these do not inherit the conversation by themselves."""
    governed, done = program_guard(), []
    agent = agent_of([send_to(done)], SEND, native=native)
    crew = govern(governed, agent if way == "agent" else crew_of(agent))
    with governed.conversation("order a7") as conversation:
        if way == "akickoff":
            asyncio.run(crew.akickoff())
        else:
            crew.kickoff("go") if way == "agent" else crew.kickoff()
    assert done == ["a"]
    found = sessions(governed)[conversation.id]
    order = [event.type for event in found if event.type.startswith(("tool.", "llm."))]
    assert order == [*ASKED, "tool.call", "tool.result", *ASKED]


@pytest.mark.parametrize("way", ["kickoff", "akickoff"])
@pytest.mark.parametrize("native", [True, False], ids=["native", "text"])
def test_model_is_told_why_a_call_is_denied(program_guard, native, way):
    governed, done = program_guard("ask"), []
    crew = govern(governed, crew_of(agent_of([send_to(done)], SEND, native=native)))
    asyncio.run(crew.akickoff()) if way == "akickoff" else crew.kickoff()
    assert done == []
    found = events(governed)
    assert [event.type for event in found if event.type.startswith("tool.")] == ["tool.denied"]
    requests = [event.payload["request"] for event in found if event.type == "llm.request"]
    sent = "\n".join(message["content"] for message in requests[1]["messages"])
    assert "NEEDS_HUMAN" in sent
    assert "deedbook approvals approve" in sent


def test_model_that_is_asked_outside_of_a_run_is_governed(program_guard):
    """A governed model judges by itself, also in a coroutine."""
    governed = program_guard()
    agent = govern(governed, agent_of([]))
    assert agent.llm.call("hello") == "done"
    assert asyncio.run(agent.llm.acall([{"role": "user", "content": "hello"}])) == "done"
    found = events(governed)
    answers = [event.payload["response"] for event in found if event.type == "llm.response"]
    assert [answer["usage"] for answer in answers] == [{"input_tokens": 7, "output_tokens": 3}] * 2
    assert [event.type for event in found if event.type.startswith("llm.")] == ASKED * 2


def test_attempts_of_the_framework_are_requests_of_their_own(program_guard, monkeypatch):
    """It asks again if a provider limits the rate."""
    governed, failures = program_guard(), [RuntimeError("too many requests")]
    monkeypatch.setattr("crewai.llms.retry._LLM_RATE_LIMIT_INITIAL_DELAY_SECONDS", 0)

    def fail_once():
        if failures:
            raise failures.pop()

    govern(governed, crew_of(agent_of([], count=fail_once))).kickoff()
    assert kinds(governed) == ["llm.request", "llm.error", *ASKED]


def test_two_guards_in_one_process_do_not_meet(program_guard):
    """Each crew has its guard, also when one runs in a tool of the other; one tool cannot have two."""
    done = []
    outer, inner = program_guard(name="outer"), program_guard("deny", name="inner")
    shared = send_to(done)
    small = govern(inner, crew_of(agent_of([shared], SEND)))

    @make_tool("delegate")
    def delegate(text: str) -> str:
        """Let another crew work."""
        small.kickoff()
        return "delegated"

    govern(outer, crew_of(agent_of([delegate], [[("delegate", {"text": "go"})]]))).kickoff()
    assert done == []
    assert kinds(outer) == [*ASKED, "tool.call", "tool.result", *ASKED]
    assert kinds(inner) == [*ASKED, "tool.denied", *ASKED]
    with pytest.raises(BindingError, match="governed by another guard"):
        govern(outer, crew_of(agent_of([shared])))


def test_cleared_hooks_open_nothing(program_guard):
    """Any code may clear the global hooks of the framework; hooks of other people fail open."""
    governed, done = program_guard("deny"), []

    def clear(_context):
        clear_all()
        raise PermissionError

    agent = agent_of([send_to(done)], SEND)
    crew = govern(governed, crew_of(agent))
    register_before_tool_call_hook(clear)
    register_before_llm_call_hook(clear)
    try:
        crew.kickoff()
    finally:
        clear_all()
    assert done == []
    assert kinds(governed) == [*ASKED, "tool.denied", *ASKED]


def test_arguments_that_a_hook_changes_are_judged_as_they_are_used(program_guard):
    governed, done = program_guard(), []

    def change(context):
        context.tool_input["text"] = "changed"

    register_before_tool_call_hook(change)
    try:
        govern(governed, crew_of(agent_of([send_to(done)], SEND))).kickoff()
    finally:
        clear_all()
    (call,) = [event.payload for event in events(governed) if event.type == "tool.call"]
    assert done == [call["args"]["input"]["text"]] == ["changed"]


def test_tools_that_the_framework_makes_in_a_run_are_governed(program_guard):
    """An agent that may delegate gets tools when its task begins; those of its co-workers pass the same door."""
    governed, done = program_guard(), []
    worker = agent_of([send_to(done)], SEND, role="worker")
    words = {"task": "send it", "context": "none", "coworker": "worker"}
    lead = agent_of([], [[("delegate_work_to_coworker", words)]], role="lead", allow_delegation=True)
    task = Task(description="go", expected_output="an answer", agent=lead)
    govern(governed, Crew(agents=[lead, worker], tasks=[task])).kickoff()
    assert done == ["a"]
    calls = [event.payload["args"]["tool"] for event in events(governed) if event.type == "tool.call"]
    assert calls == ["delegate_work_to_coworker", "send"]


@pytest.mark.parametrize("unknown", ["allow", "deny"])
def test_manager_that_the_framework_makes_is_governed(program_guard, unknown):
    governed, done = program_guard(unknown), []
    worker = agent_of([send_to(done)], SEND, role="worker")
    words = {"task": "send it", "context": "none", "coworker": "worker"}
    manager = Fake(model="fake", turns=[[("delegate_work_to_coworker", words)]])
    task = Task(description="go", expected_output="an answer")
    crew = Crew(agents=[worker], tasks=[task], process=Process.hierarchical, manager_llm=manager)
    govern(governed, crew).kickoff()
    assert done == (["a"] if unknown == "allow" else [])
    found = kinds(governed)
    assert found.count("llm.request") == (4 if unknown == "allow" else 2)
    assert found.count("tool.call") == (2 if unknown == "allow" else 0)


def test_copies_are_governed(program_guard):
    governed, done = program_guard("deny"), []
    crew = crew_of(agent_of([send_to(done)], SEND + SEND))
    govern(governed, crew).kickoff_for_each([{}, {}])
    assert done == []
    assert kinds(governed).count("tool.denied") >= 1


def test_agent_that_is_not_governed_runs_no_tool_in_a_governed_run(program_guard):
    """A tool that builds an agent of its own, and a model that nobody governs."""
    governed, done, notes = program_guard(), [], []

    class Noted(Fake):
        def call(self, messages, tools=None, *args, **kwargs):
            self._invoke_before_llm_call_hooks(messages)
            notes.append("asked")
            return Fake.call.__wrapped__(self, messages, tools)

    @make_tool("build")
    def build(text: str) -> str:
        """Build an agent."""
        model = Noted(model="fake", turns=[list(turn) for turn in SEND])
        made = Agent(role="new", goal="work", backstory="none", llm=model, tools=[send_to(done)])
        return str(crew_of(made).kickoff())

    govern(governed, crew_of(agent_of([build], [[("build", {"text": "go"})]]))).kickoff()
    assert done == []
    found = events(governed)
    assert {event.payload["outcome"] for event in found if event.type == "llm.error"} == {"unknown"}
    assert [event.payload["said"] for event in found if event.payload.get("event") == "UngovernedTool"] == [
        {"tool": "send", "reason": "its agent is not governed"}
    ]
    assert notes


def test_hook_that_fails_stops_the_call(program_guard, monkeypatch):
    """The framework runs the tool after any exception of a hook but its own."""
    governed, done = program_guard(), []
    crew = govern(governed, crew_of(agent_of([send_to(done)], SEND)))

    def crash(_target):
        raise RuntimeError("the check crashed")

    monkeypatch.setattr("deedbook_adapter_crewai.governance.owner_of", crash)
    with pytest.raises(HookAborted, match="the check crashed"):
        crew.kickoff()
    assert done == []


def test_repeated_call_is_made_and_judged_again(program_guard):
    """The framework's cache would answer it without a decision."""
    governed, done = program_guard(), []
    govern(governed, crew_of(agent_of([send_to(done)], SEND + SEND))).kickoff()
    assert done == ["a", "a"]
    assert kinds(governed).count("tool.call") == 2


class Sender(BaseTool):
    """A tool that is a class, and may call itself."""

    name: str = "send"
    description: str = "Send a text."
    done: list[str] = []

    def _run(self, text: str, again: bool = False) -> str:
        self.done.append(text)
        return self.run(text="third") if again else f"sent {text}"

    async def _arun(self, text: str, again: bool = False) -> str:
        self.done.append(text)
        return f"sent {text}"


@pytest.mark.parametrize("native", [True, False], ids=["native", "text"])
def test_tool_that_calls_itself_is_judged_each_time(program_guard, native):
    governed, sender = program_guard(), Sender()
    turns = [[("send", {"text": "a", "again": True})]]
    govern(governed, crew_of(agent_of([sender], turns, native=native))).kickoff()
    assert sender.done == ["a", "third"]
    assert kinds(governed).count("tool.call") == kinds(governed).count("tool.result") == 2


def test_each_method_of_a_tool_passes_the_door_once(program_guard):
    governed, sender = program_guard(), Sender()
    govern(governed, crew_of(agent_of([sender, send_to([])])))
    sender.run(text="a")
    sender._run("b")
    sender.to_structured_tool().invoke({"text": "c"})
    asyncio.run(sender.arun(text="d"))
    asyncio.run(sender._arun("e"))
    assert sender.done == ["a", "b", "c", "d", "e"]
    calls = [event.payload["args"]["input"] for event in events(governed) if event.type == "tool.call"]
    assert [call["text"] for call in calls] == ["a", "b", "c", "d", "e"]


def test_failure_that_a_tool_reports_is_recorded(program_guard):
    governed = program_guard()

    @make_tool("send")
    def send(text: str) -> Any:
        """Send a text."""
        return ToolFailure(message="no such channel")

    govern(governed, crew_of(agent_of([send], SEND))).kickoff()
    (error,) = [event.payload for event in events(governed) if event.type == "tool.error"]
    assert error["outcome"] == "failed"
    assert "no such channel" in error["message"]


def test_what_another_framework_runs_is_refused(program_guard):
    governed = program_guard()
    for target in (object(), send_to([])):
        with pytest.raises(BindingError, match="neither a crew nor an agent"):
            govern(governed, target)


def test_version_that_is_not_tested_is_refused(program_guard, monkeypatch):
    monkeypatch.setattr("deedbook_adapter_crewai.BELOW", "1.0")
    with pytest.raises(BindingError, match="is tested with crewai"):
        govern(program_guard(), crew_of(agent_of([])))
