"""The adapter for Microsoft Agent Framework, with real agents and a fake chat client."""

import asyncio

import pytest
from agent_framework import Agent, Message, MiddlewareFailure, tool
from agent_framework_client import FakeChatClient, told
from deedbook_adapter_agent_framework import govern

from deedbook import guard
from deedbook.format.errors import BindingError, LedgerError, fault
from deedbook_guard import Conversation
from deedbook_testing.adapters import AdapterContract, read_events


class TestContract(AdapterContract):
    """What every adapter must hold."""

    framework = "agent-framework"
    retry_error = ValueError

    def agent(self, governed, tools, turns):
        made = [tool(each, approval_mode="never_require") for each in tools.values()]
        return Agent(FakeChatClient(turns, self.requests.count), tools=made, middleware=govern(governed))

    def team(self, governed, tools, turns):
        inner = self.agent(governed, tools, turns)

        async def delegate(text: str) -> str:
            """Let another agent work."""
            return told((await inner.run(text)).messages)

        return self.agent(governed, {"delegate": delegate}, [[("delegate", {"text": "go"})]])

    async def run(self, agent):
        return told((await agent.run("go")).messages)

    async def stream(self, agent):
        stream = agent.run("go", stream=True)
        async for _ in stream:
            pass
        return told((await stream.get_final_response()).messages)


@pytest.fixture
def asking(program_guard):
    """Give the guard of a workspace that asks a person about unknown tools."""
    return program_guard("ask")


@pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
def test_usage_and_instructions_are_recorded(asking, stream):
    agent = Agent(FakeChatClient([]), instructions="Be brief.", middleware=govern(asking))

    async def run():
        ran = agent.run("go", stream=stream)
        await (ran.get_final_response() if stream else ran)

    asyncio.run(run())
    found = {event.type: event.payload for event in read_events(asking)}
    sent = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]
    assert found["llm.request"]["request"]["messages"] == sent
    assert found["llm.response"]["response"]["usage"] == {"input_tokens": 7, "output_tokens": 3}


def test_call_that_needs_a_person_pauses_the_run(asking):
    """A resumed run is judged again: the framework's own yes is no signed approval."""
    done = []

    @tool(approval_mode="never_require")
    def send(text: str) -> str:
        """Send a text."""
        done.append(text)
        return text

    agent = Agent(FakeChatClient([[("send", {"text": "a"})]]), tools=[send], middleware=govern(asking, pause=True))

    async def run():
        session = agent.create_session()
        first = await agent.run("go", session=session)
        (wanted,) = first.user_input_requests
        assert wanted.additional_properties["approval"]
        yes = Message("user", [wanted.to_function_approval_response(approved=True)])
        return await agent.run(yes, session=session)

    again = asyncio.run(run())
    (wanted,) = again.user_input_requests
    assert wanted.additional_properties["approval"]
    assert done == []


def test_stream_that_is_left_early_has_an_outcome(asking):
    agent = Agent(FakeChatClient([]), middleware=govern(asking))

    async def run():
        stream = agent.run("go", stream=True)
        async for _ in stream:
            break
        await stream.close()

    asyncio.run(run())
    kinds = [
        (event.type, event.payload.get("outcome")) for event in read_events(asking) if event.type.startswith("llm.")
    ]
    assert kinds == [("llm.request", None), ("llm.error", "cancelled")]


@pytest.mark.parametrize("part", ["abefore", "aafter"])
def test_failure_of_the_ledger_ends_the_run(tmp_path, monkeypatch, part):
    """The framework would tell the model about any other exception, and go on."""
    asked = []

    async def fail(*_args):
        raise LedgerError(fault("LEDGER_LOCKED", "the disk is full"))

    def send(text: str) -> str:
        """Send a text."""
        return text

    (tmp_path / ".system").mkdir()
    text = "schema_version: v1\ndefault: {write: allow}\nagents: {crew: {kind: program, unknown_tools: allow}}\n"
    (tmp_path / ".system/deedbook.yaml").write_text(text)
    with guard("crew", workspace=tmp_path) as governed:
        monkeypatch.setattr(Conversation, part, fail)
        client = FakeChatClient([[("send", {"text": "a"})]], lambda: asked.append(1))
        agent = Agent(client, tools=[tool(send, approval_mode="never_require")], middleware=govern(governed))
        with pytest.raises(MiddlewareFailure, match="the disk is full"):
            asyncio.run(agent.run("go"))
    assert len(asked) == 1


def test_version_that_is_not_tested_is_refused(asking, monkeypatch):
    monkeypatch.setattr("deedbook_adapter_agent_framework.BELOW", "1.0")
    with pytest.raises(BindingError, match="is tested with agent-framework-core"):
        govern(asking)
