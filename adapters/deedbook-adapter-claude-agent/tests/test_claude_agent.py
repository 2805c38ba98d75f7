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
    AssistantMessage,
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    ProcessError,
    ResultMessage,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    tool,
)
from click.testing import CliRunner
from deedbook_adapter_claude_agent import govern, list_tools
from deedbook_adapter_claude_agent.run import Run

from deedbook import guard
from deedbook.cli.common import GlobalOptions
from deedbook.cli.program import program
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
            shown, delta = block, None
            if block["type"] == "text":
                shown, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
            elif "input" in block:
                shown = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            events.append(("content_block_start", {"index": index, "content_block": shown}))
            if delta:
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
        given = {"allowed_tools": [*NAMES.values(), "Bash"], "setting_sources": [], **options}
        self.options = ClaudeAgentOptions(
            mcp_servers={"crew": create_sdk_mcp_server("crew", tools=[served(each) for each in tools.values()])},
            model="claude-sonnet-4-5",
            cwd=home,
            env={
                "ANTHROPIC_API_KEY": "none",
                "ANTHROPIC_BASE_URL": fake.endpoint.url,
                "CLAUDE_CODE_MAX_RETRIES": "0",
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

    framework = "claude-agent"
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

    def framework_agent(self, agent):
        return agent.options if isinstance(agent, Agent) else agent

    async def run(self, agent):
        return told(await agent.run())

    async def stream(self, agent):
        async with agent.sdk.client(replace(agent.options, include_partial_messages=True)) as client:
            await client.query("go")
            return told([each async for each in client.receive_response()])


# --- the adapter alone ------------------------------------------------------------------------------------------------

SEND = [("send", {"text": "a"})]
BASH = [("Bash", {"command": "echo secret"})]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Give a function that writes a workspace and returns its guard."""
    made = []
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def make(unknown="allow", more="", *, approver=""):
        (tmp_path / ".system").mkdir()
        if approver:
            command(tmp_path, "keys", "new", approver, "--out", str(tmp_path / f".system/{approver}.pub"))
            more += f"principals: {{{approver}: {{key: {approver}.pub, roles: [approver]}}}}\n"
        head = "schema_version: v1\ndefault: {write: allow}\n"
        text = f"{head}agents: {{crew: {{kind: program, unknown_tools: {unknown}}}}}\n{more}"
        (tmp_path / ".system/deedbook.yaml").write_text(text)
        made.append(guard("crew", workspace=tmp_path))
        return made[0]

    yield make
    for each in made:
        each.close()


class Tools:
    """A tool that counts what it did."""

    def __init__(self):
        self.done = []

    def given(self):
        def send(text: str) -> str:
            """Send a text."""
            self.done.append(text)
            return f"sent {text}"

        return {"send": send}


@pytest.fixture
def tools():
    """Give the tool and what it did."""
    return Tools()


def events(governed):
    """Return the events of all sessions, after checking that they verify."""
    governed.close()
    command(governed.workspace, "verify")
    places = sorted((governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl"))
    return [event for place in places for event in read(place)]


def command(workspace, *words):
    ran = CliRunner().invoke(program, ["-C", str(workspace), *words], obj=GlobalOptions())
    assert ran.exit_code == 0, ran.output
    return ran.output


def calls(governed):
    """Return the events of calls with their outcomes."""
    return [(event.type, event.payload.get("outcome")) for event in events(governed) if event.type.startswith("tool.")]


def notes(found, name):
    return [event for event in found if event.type == "bridge.told" and event.payload["event"] == name]


def result(messages):
    return [each for each in messages if isinstance(each, ResultMessage)][-1]


@pytest.mark.parametrize("approved", [True, False])
def test_deferred_call_runs_only_after_a_recorded_approval(place, begin, tools, approved):
    """The process may end meanwhile: the resumed run is judged again."""
    governed = place("ask", approver="ada")
    agent = begin(governed, [SEND], tools.given(), pause=True)
    first = result(asyncio.run(agent.run()))
    waits = agent.sdk.pending[first.deferred_tool_use.id]
    assert "NEEDS_HUMAN" in waits.reason
    if approved:
        command(governed.workspace, "approvals", "approve", waits.approval, "--as", "ada", "--yes")
    messages = asyncio.run(agent.run("go on", resume=first.session_id))
    assert ("sent a" in told(messages)) == approved
    assert tools.done == ["a"] * approved
    assert list(agent.sdk.pending) == [first.deferred_tool_use.id] * (not approved)
    after = ["tool.call", "tool.result"] if approved else ["tool.denied"]
    assert [kind for kind, _ in calls(governed)] == ["tool.denied", *after]


def test_call_that_a_person_must_decide_is_told_to_the_model_without_pause(place, begin, tools):
    governed = place("ask")
    assert "NEEDS_HUMAN" in told(asyncio.run(begin(governed, [SEND], tools.given()).run()))
    assert calls(governed) == [("tool.denied", None)]


def test_call_of_a_sub_agent_names_it_and_cannot_be_deferred(place, begin, tools):
    rule = "{match: {args: {/input/text: {equals: b}}}, then: ask}"
    governed = place("allow", f"policies: {{p: {{kind: rules, rules: [{rule}], default: allow}}}}\n")
    worker = {"worker": AgentDefinition(description="Works.", prompt=WORKER)}
    delegate = ("delegate", {"description": "work", "prompt": "go", "subagent_type": "worker"})
    turns = [[*SEND, ("send", {"text": "b"})]]
    agent = begin(governed, [[delegate]], tools.given(), worker=turns, agents=worker, pause=True)
    asyncio.run(agent.run())
    assert tools.done == ["a"]
    found = events(governed)
    sent = [event for event in found if event.type == "tool.call" and "send" in str(event.payload)]
    (note,) = notes(found, "SubagentCall")
    assert note.parent == sent[0].span
    assert note.payload["said"]["agent_type"] == "worker"
    assert [event.type for event in found if event.type.startswith("tool.")].count("tool.denied") == 1


def test_call_that_the_rules_of_the_cli_refuse_is_closed(place, begin, tools):
    """An allowed call is no permission for the CLI, whose own rules go on to hold."""
    governed = place()
    messages = asyncio.run(begin(governed, [SEND], tools.given(), allowed_tools=[]).run())
    assert "requested permissions" in told(messages)
    assert tools.done == []
    assert calls(governed) == [("tool.call", None), ("tool.error", "cancelled")]


def test_failure_of_a_tool_is_recorded(place, begin):
    governed = place()
    asyncio.run(begin(governed, [[("Bash", {"command": "exit 3"})]]).run())
    (failed,) = [event for event in events(governed) if event.type == "tool.error"]
    assert "Exit code 3" in str(failed.payload)


def test_usage_is_noted_and_no_request_is_recorded(place, begin):
    governed = place()
    asyncio.run(begin(governed, [BASH]).run())
    found = events(governed)
    (note,) = notes(found, "ModelUsage")
    assert (note.payload["said"]["usage"]["input_tokens"], note.payload["said"]["turns"]) == (14, 2)
    assert [event.type for event in found if event.type.startswith("llm.")] == []


def test_tool_of_the_provider_is_noted(place, begin, monkeypatch):
    governed = place()
    agent = begin(governed)
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    answer = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    agent.fake.endpoint.always = lambda body: agent.fake.send(body, [block, answer, {"type": "text", "text": "done"}])
    asyncio.run(agent.run())
    (note,) = notes(events(governed), "HostedTool")
    assert note.payload["said"] == {"type": "web_search", "tool_use_id": "srvtoolu_1"}


def test_tools_that_only_the_cli_knows_are_named():
    options = ClaudeAgentOptions(mcp_servers={"shop": {"command": "shop"}})
    assert [text.split(",")[0] for text in list_tools(options).unlisted] == [
        "the tools of the CLI",
        "the tools of the MCP server 'shop'",
    ]
    assert "servers.json" in list_tools(ClaudeAgentOptions(mcp_servers="servers.json")).unlisted[1]


def test_version_that_is_not_tested_is_refused(place, monkeypatch):
    monkeypatch.setattr("deedbook_adapter_claude_agent.BELOW", "0.2")
    with pytest.raises(BindingError, match="is tested with claude-agent-sdk"):
        govern(place())


# --- interruptions ----------------------------------------------------------------------------------------------------


def waiting():
    """Return an event and a tool that sets it and goes on until it is cancelled."""
    begun = asyncio.Event()

    async def send(text: str) -> str:
        """Send a text."""
        begun.set()
        await asyncio.Event().wait()
        return text

    return begun, {"send": send}


def test_interrupted_call_is_closed_and_the_client_goes_on(place, begin):
    governed = place()

    async def interrupt():
        begun, tools = waiting()
        agent = begin(governed, [SEND], tools)
        async with agent.sdk.client(agent.options) as client:
            await client.query("go")
            reading = asyncio.create_task(collect(client))
            await asyncio.wait_for(begun.wait(), 30)
            await client.interrupt()
            await reading
            await client.query("again")
            return result(await collect(client))

    assert asyncio.run(interrupt()).result == "done"
    assert calls(governed) == [("tool.call", None), ("tool.error", "cancelled")]


def test_call_of_a_cli_that_dies_has_an_unknown_outcome(place, begin):
    governed = place()

    async def kill():
        begun, tools = waiting()
        agent = begin(governed, [SEND], tools)
        async with agent.sdk.client(agent.options) as client:
            await client.query("go")
            reading = asyncio.create_task(collect(client))
            await asyncio.wait_for(begun.wait(), 30)
            client._transport._process.kill()
            await reading

    with pytest.raises(ProcessError):
        asyncio.run(kill())
    assert calls(governed) == [("tool.call", None), ("tool.error", "unknown")]


def test_run_that_is_left_early_closes_its_calls(place, begin):
    governed = place()

    async def leave():
        begun, tools = waiting()
        agent = begin(governed, [SEND], tools)
        messages = agent.sdk.query(prompt="go", options=agent.options)
        async for message in messages:
            if isinstance(message, AssistantMessage):
                await asyncio.wait_for(begun.wait(), 30)
                break
        await messages.aclose()

    asyncio.run(leave())
    assert calls(governed) == [("tool.call", None), ("tool.error", "cancelled")]


def test_cancelled_client_closes_its_calls(place, begin):
    governed = place()

    async def cancel():
        begun, tools = waiting()
        agent = begin(governed, [SEND], tools)

        async def work():
            async with agent.sdk.client(agent.options) as client:
                await client.query("go")
                await collect(client)

        task = asyncio.create_task(work())
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert calls(governed) == [("tool.call", None), ("tool.error", "cancelled")]


@pytest.mark.parametrize("part", ["abefore", "aafter"])
def test_failure_of_the_ledger_ends_the_run(place, begin, tools, monkeypatch, part):
    """The model is not asked again, and the program gets the exception."""
    governed = place()

    async def fail(*_args):
        raise LedgerError(fault("LEDGER_LOCKED", "the disk is full"))

    agent = begin(governed, [SEND], tools.given())
    monkeypatch.setattr(Conversation, part, fail)
    with pytest.raises(LedgerError, match="the disk is full"):
        asyncio.run(agent.run())
    assert len(agent.fake.bodies) == 1
    assert tools.done == ([] if part == "abefore" else ["a"])


async def collect(client):
    return [each async for each in client.receive_response()]


# --- ways around the hooks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["environment", "options", "settings", "settings file", "user's settings"])
def test_bare_mode_is_switched_off(place, begin, tools, monkeypatch, where):
    """In its bare mode the CLI asks no hook, and no option on_failure changes that."""
    governed = place("deny")
    agent = begin(governed, [SEND], tools.given(), setting_sources=["user"])
    home, variable = governed.workspace / "home0", {"CLAUDE_CODE_SIMPLE": "1"}
    settings = json.dumps({"env": {**variable, "KEPT": "kept"}})
    changed = {}
    if where == "environment":
        monkeypatch.setenv("CLAUDE_CODE_SIMPLE", "1")
    elif where == "options":
        changed = {"env": {**agent.options.env, **variable}}
    elif where == "settings":
        changed = {"settings": settings}
    elif where == "settings file":
        (home / "own.json").write_text(settings)
        changed = {"settings": "own.json"}
    else:
        (home / "settings.json").write_text(settings)
    asyncio.run(agent.run(**changed))
    assert tools.done == []
    assert calls(governed) == [("tool.denied", None)]


@pytest.mark.parametrize("decision", ["allow", "ask"])
@pytest.mark.parametrize("pause", [False, True])
def test_other_hook_cannot_lift_a_decision(place, begin, tools, decision, pause):
    governed = place("ask")

    async def decide(given, tool_use_id, context):
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision}}

    async def allow(name, args, context):
        return PermissionResultAllow()

    hooks = {"PreToolUse": [HookMatcher(hooks=[decide])]}
    agent = begin(governed, [SEND], tools.given(), pause=pause, hooks=hooks, can_use_tool=allow, allowed_tools=[])
    asyncio.run(agent.run())
    assert tools.done == []
    assert calls(governed) == [("tool.denied", None)]


def test_hook_that_crashes_blocks_the_call(place, begin, tools, monkeypatch):
    """By default the SDK runs the tool if a hook fails."""

    async def crash(*_args):
        raise RuntimeError("the hook crashed")

    monkeypatch.setattr(Run, "_before", crash)
    assert "blocking" in told(asyncio.run(begin(place(), [SEND], tools.given()).run()))
    assert tools.done == []


def test_gate_that_never_answers_blocks_the_call(place, begin, tools, monkeypatch):
    governed = place()

    async def hang(*_args):
        await asyncio.Event().wait()

    monkeypatch.setattr("deedbook_adapter_claude_agent.run._PATIENCE", 0.5)
    monkeypatch.setattr(Conversation, "abefore", hang)
    asyncio.run(begin(governed, [SEND], tools.given()).run())
    assert tools.done == []
    assert calls(governed) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"extra_args": {"bare": None}}, "asks no hooks"),
        ({"extra_args": {"settings": "{}"}}, "option settings"),
        ({"settings": "missing.json"}, "cannot be read"),
        ({"settings": "{"}, "cannot be read"),
        ({"settings": '{"env": []}'}, "an object is expected"),
    ],
)
def test_options_that_cannot_be_governed_are_refused(place, begin, options, why):
    agent = begin(place())
    with pytest.raises(BindingError, match=why):
        asyncio.run(agent.run(**options))
    assert agent.fake.bodies == []


def test_call_without_a_decision_is_recorded_and_ends_the_run(place, begin, tools, monkeypatch):
    """If the CLI asks no hook for a reason that the adapter does not know, the messages show it."""
    governed = place()
    monkeypatch.setattr("deedbook_adapter_claude_agent.run.ask_hooks", lambda options: options)
    with pytest.raises(BindingError, match="ran without a decision"):
        asyncio.run(begin(governed, [SEND], tools.given(), extra_args={"bare": None}).run())
    (note,) = notes(events(governed), "UngovernedCall")
    assert note.payload["said"]["tool"] == "mcp__crew__send"


# --- arguments and results --------------------------------------------------------------------------------------------


def hooked(event, *words, more=""):
    """Return a hook of the workspace, which is a program."""
    handler = json.dumps({"script": words})
    return f"hooks: {{h: {{event_type: {event}, handler: {handler}, match: {{abilities: [crew/other]}}{more}}}}}\n"


def transform(value):
    """Return words of a program that answers with *value*."""
    answer = json.dumps({"decision": "transform", "args": value})
    return "/bin/sed", f"s%.*%{answer}%"


def test_arguments_that_a_hook_of_the_workspace_changed_are_used(place, begin, tools):
    changed = {"tool": "mcp__crew__send", "input": {"text": "b"}}
    governed = place(more=hooked("PreToolUse", *transform(changed), more=", rewrites: true"))
    asyncio.run(begin(governed, [SEND], tools.given()).run())
    assert tools.done == ["b"]
    assert calls(governed) == [("tool.call", None), ("tool.result", None)]
    assert notes(events(governed), "ArgumentsChanged") == []


def changing_hook(event, args):
    specific = {"hookEventName": event, "updatedInput": args}
    if event == "PermissionRequest":
        specific = {"hookEventName": event, "decision": {"behavior": "allow", "updatedInput": args}}

    async def hook(given, tool_use_id, context):
        return {"hookSpecificOutput": specific}

    return {event: [HookMatcher(hooks=[hook])]}


@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest"])
@pytest.mark.parametrize("changed", [True, False])
def test_other_hook_cannot_change_the_arguments(place, begin, tools, event, changed):
    """The CLI would run the call with arguments that nobody judged."""
    governed = place()
    hooks = changing_hook(event, {"text": "b" if changed else "a"})
    allowed = [] if event == "PermissionRequest" else list(NAMES.values())
    messages = asyncio.run(begin(governed, [SEND], tools.given(), hooks=hooks, allowed_tools=allowed).run())
    assert tools.done == ([] if changed else ["a"])
    assert ("another hook changed the arguments" in told(messages)) == changed
    assert calls(governed)[-1] == (("tool.error", "cancelled") if changed else ("tool.result", None))


@pytest.mark.parametrize("text", ["a", "b"])
def test_permission_callback_cannot_change_the_arguments(place, begin, tools, text):
    governed = place()

    async def allow(name, args, context):
        return PermissionResultAllow(updated_input={"text": text})

    asyncio.run(begin(governed, [SEND], tools.given(), can_use_tool=allow, allowed_tools=[]).run())
    assert tools.done == ([] if text == "b" else ["a"])


def test_arguments_that_a_settings_file_changed_are_noted(place, begin, tools):
    """The adapter does not see such a hook before the call ran."""
    governed = place()
    answer = json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"text": "b"}}})
    hook = {"type": "command", "command": f"echo '{answer}'"}
    settings = json.dumps({"hooks": {"PreToolUse": [{"matcher": "", "hooks": [hook]}]}})
    asyncio.run(begin(governed, [SEND], tools.given(), settings=settings).run())
    assert tools.done == ["b"]
    (note,) = notes(events(governed), "ArgumentsChanged")
    assert note.payload["said"]["input"] == {"text": "b"}


def test_result_that_a_hook_narrowed_replaces_that_of_a_tool(place, begin):
    seen = {"stdout": "less", "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    governed = place(more=hooked("PostToolUse", *transform(seen)))
    agent = begin(governed, [BASH])
    assert told(asyncio.run(agent.run())) == "less"
    assert "secret" not in json.dumps(agent.fake.bodies[-1]["messages"][-1])


def test_withheld_result_does_not_reach_the_model(place, begin, tools):
    """A tool of the CLI takes no other form of result: the run stops, and a later run does not see the text either."""
    governed = place(more=hooked("PostToolUse", "/bin/false"))
    read = [("Read", {"file_path": str(governed.workspace / "home0/notes.txt")})]
    agent = begin(governed, [SEND, BASH, read], tools.given())
    (governed.workspace / "home0/notes.txt").write_text("my notes")

    async def run():
        async with agent.sdk.client(agent.options) as client:
            made = []
            for prompt in ("go", "go on", "and on"):
                await client.query(prompt)
                made.append(await collect(client))
            return made

    first, second, third = asyncio.run(run())
    assert "GATE_DENIED" in told(first)
    assert [result(each).terminal_reason for each in (first, second, third)] == ["hook_stopped"] * 2 + ["completed"]
    told_model = json.dumps([body["messages"] for body in agent.fake.bodies])
    assert [text for text in ("sent a", '"secret', "my notes") if text in told_model] == []
