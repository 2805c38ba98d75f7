"""The adapter for the Claude Agent SDK, with the real SDK, its bundled CLI, and a fake API on the loopback."""

import asyncio
import itertools
import json
import threading
from dataclasses import replace
from uuid import uuid4

import pytest
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    ResultMessage,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    tool,
)
from deedbook_adapter_claude_agent import govern

from deedbook import guard
from deedbook.format.errors import BindingError, LedgerError, fault
from deedbook.format.reader import read
from deedbook_guard import Conversation, completions
from deedbook_testing.adapters import AdapterContract
from deedbook_testing.endpoints.server import Endpoint, document, stream

WORKER = "You are the worker."
NAMES = {"send": "mcp__crew__send", "drop": "mcp__crew__drop", "delegate": "Agent"}


class Fake:
    """Anthropic's API with prepared answers: those of *turns*, then ``done``; *worker* is for the sub-agent."""

    def __init__(self, turns, worker=(), count=lambda: None):
        self.turns = {False: [list(turn) for turn in turns], True: [list(turn) for turn in worker]}
        self.count = count
        self.bodies = []
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.endpoint = Endpoint()
        self.endpoint.always = self.answer

    def answer(self, body):
        if not body.get("tools"):  # what the CLI asks for itself, such as a title
            return self.send(body, [{"type": "text", "text": "title"}])
        with self.lock:
            self.bodies.append(body)
            turns = self.turns[WORKER in json.dumps(body["system"])]
            blocks = [use(*call) for call in turns.pop(0)] if turns else [{"type": "text", "text": "done"}]
        try:
            self.count()
        except RuntimeError as problem:
            return document({"type": "error", "error": {"type": "invalid", "message": str(problem)}}, status=400)
        return self.send(body, blocks)

    def send(self, body, blocks):
        stop = "tool_use" if blocks[0]["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": 7, "output_tokens": 3}
        head = {"id": f"msg_{next(self.numbers)}", "type": "message", "role": "assistant", "model": body["model"]}
        head |= {"content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": usage}
        if not body.get("stream"):
            return document(head)
        events = [("message_start", {"message": {**head, "content": [], "stop_reason": None}})]
        for index, block in enumerate(blocks):
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block.get("text")}
            if block["type"] != "text":
                empty, delta = {**block, "input": {}}, {"type": "input_json_delta"}
                delta["partial_json"] = json.dumps(block["input"])
            events.append(("content_block_start", {"index": index, "content_block": empty}))
            events.append(("content_block_delta", {"index": index, "delta": delta}))
            events.append(("content_block_stop", {"index": index}))
        events.append(("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}))
        events.append(("message_stop", {}))
        parts = [f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in events]
        return stream([part.encode() for part in parts], kind="text/event-stream")


def use(name, args):
    """Return a block that asks for a call."""
    return {"type": "tool_use", "id": f"toolu_{uuid4().hex}", "name": NAMES.get(name, name), "input": dict(args)}


def served(function):
    """Return a tool of an MCP server in this process."""

    @tool(function.__name__, function.__doc__, {"text": str})
    async def call(args):
        value = function(**args)
        text = await value if asyncio.iscoroutine(value) else value
        return {"content": [{"type": "text", "text": text}]}

    return call


class Agent:
    """What a program has: the governed functions of the SDK, and its options."""

    def __init__(self, governed, fake, tools, home, *, pause=False, **options):
        self.fake = fake
        self.sdk = govern(governed, pause=pause)
        given = {"allowed_tools": [*NAMES.values(), "Bash"], **options}
        self.options = ClaudeAgentOptions(
            mcp_servers={"crew": create_sdk_mcp_server("crew", tools=[served(each) for each in tools.values()])},
            model="claude-sonnet-4-5",
            cwd=home,
            setting_sources=[],
            env={
                "ANTHROPIC_API_KEY": "none",
                "ANTHROPIC_BASE_URL": fake.endpoint.url,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CONFIG_DIR": str(home),
                "HOME": str(home),
            },
            **given,
        )

    async def run(self, prompt="go", **options):
        return [each async for each in self.sdk.query(prompt=prompt, options=replace(self.options, **options))]


def told(messages):
    """Return what tools told the model."""
    blocks = itertools.chain.from_iterable(
        each.content for each in messages if isinstance(each, UserMessage) and isinstance(each.content, list)
    )
    return "\n".join(completions.text_of(each.content) for each in blocks if isinstance(each, ToolResultBlock))


@pytest.fixture
def begin(tmp_path):
    """Give a function that makes an agent; its API is closed after the test."""
    made = []

    def make(governed, turns=(), tools=None, *, worker=(), count=lambda: None, **options):
        home = tmp_path / f"home{len(made)}"
        home.mkdir()
        made.append(Agent(governed, Fake(turns, worker, count), tools or {}, home, **options))
        return made[-1]

    yield make
    for each in made:
        each.fake.endpoint.close()


class TestContract(AdapterContract):
    """What every adapter must hold."""

    retry_error = ValueError
    tool_names = NAMES
    requests_hidden = True

    @pytest.fixture(autouse=True)
    def _begin(self, begin):
        self.begin = begin

    def agent(self, governed, tools, turns):
        return self.begin(governed, turns, tools, count=self.requests.count)

    def team(self, governed, tools, turns):
        worker = AgentDefinition(description="Works.", prompt=WORKER)
        delegate = ("delegate", {"description": "work", "prompt": "go", "subagent_type": "worker"})
        return self.begin(governed, [[delegate]], tools, worker=turns, agents={"worker": worker})

    async def run(self, agent):
        return told(await agent.run())

    async def stream(self, agent):
        async with agent.sdk.client(replace(agent.options, include_partial_messages=True)) as client:
            await client.query("go")
            return told([each async for each in client.receive_response()])
