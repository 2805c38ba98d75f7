"""The gateway, `deedbook mcp serve --upstream`: a client of the official SDK, the real command, a server behind it.

The server is that of the conformance suite, on the official SDK.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import ElicitResult, PromptReference

from deedbook.format.reader import read

EXPECTED = Path(__file__).parent / "conformance" / "expected.py"
RULES = [
    {"match": {"abilities": "it/resources/read", "args": {"/uri": {"like": "test://static-binary"}}}, "then": "deny"},
    {"match": {"abilities": "it/test_error_handling"}, "then": "deny"},
    {"match": {"abilities": "it/**"}, "then": "allow"},
]
LIMIT = 60
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture(scope="module")
def place(tmp_path_factory, deedbook_command):
    """Give a workspace with the server, listed by the command as a user does it."""
    path = tmp_path_factory.mktemp("gateway")
    (path / ".system").mkdir()
    settings = {"schema_version": "v1", "policies": {"gateway": {"kind": "rules", "rules": RULES}}}
    (path / ".system/deedbook.yaml").write_text(json.dumps(settings))
    add = [deedbook_command, "mcp", "add", "it", "--yes", "--", sys.executable, str(EXPECTED)]
    subprocess.run(add, cwd=path, check=True, capture_output=True)
    return path


class Visit:
    """A client's work, and what it was sent besides answers."""

    def __init__(self):
        self.asked, self.progress, self.messages = [], [], []
        self.more = anyio.Event()

    async def ask(self, _ctx, params):
        self.asked.append(params.message)
        return ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.org"})

    async def show(self, progress, total, message):
        self.progress.append((progress, total, message))

    async def hear(self, message):
        self.messages.append(message)
        self.more.set()

    def heard(self, kind):
        return [each.params for each in self.messages if type(each).__name__ == kind]

    async def until(self, kind):
        """Wait until a notification of that kind has come."""
        with anyio.fail_after(LIMIT):
            while not self.heard(kind):
                await self.more.wait()
                self.more = anyio.Event()

    def connect(self, server, work, mode="legacy"):
        """Do *work* with a client that is connected to *server*."""

        async def main():
            options = {"mode": mode, "elicitation_callback": self.ask, "message_handler": self.hear}
            async with Client(server, **options) as client:
                await work(client)

        anyio.run(main)
        return self


def gateway(place, command, *more):
    """Return the configuration of a client: the server's own, with one line changed."""
    return StdioServerParameters(command=command, args=["--workspace", str(place), "mcp", "serve", *more])


async def refused(request):
    """Return the error that *request* comes to."""
    with pytest.raises(MCPError) as caught:
        await request
    return caught.value.error


def latest(place):
    """Return the events of the latest session."""
    sessions = sorted((place / ".deedbook/sessions").iterdir(), key=lambda each: each.stat().st_mtime_ns)
    return list(read(sessions[-1]))


def outcomes(events):
    """Return each call with its decision and its outcome; a call that is denied or unknown has no outcome."""
    ended = {each.parent: each.type for each in events if each.type in ("tool.result", "tool.error")}
    made, decision = [], None
    for event in events:
        if event.type == "policy.check":
            decision = event.payload["ability"], event.payload["decision"]
        elif event.type in ("tool.call", "tool.denied"):
            name = event.payload.get("tool_name") or event.payload["name"]
            decided = decision[1] if decision and decision[0] == name else "none"
            made.append((name, decided, ended.get(event.span)))
            decision = None
    return made


def test_client_of_the_gateway_gets_what_the_server_offers_and_the_ledger_has_all_of_it(place, deedbook_command):
    visit = Visit()

    async def work(client):
        can = client.server_capabilities
        assert [bool(each) for each in (can.tools, can.logging, can.completions)] == [True] * 3
        assert (can.resources.subscribe, can.prompts.list_changed) == (True, True)
        assert client.server_info.name == "expected"
        assert client.instructions.startswith("Call the tools as the suite does.")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "$schema" in tools["json_schema_2020_12_tool"].input_schema, "as the server listed it"
        assert (await client.call_tool("test_simple_text")).content[0].text.startswith("This is a simple")
        await client.call_tool("test_tool_with_progress", progress_callback=visit.show)
        assert (await client.list_resources()).resources[0].name == "static-text"
        assert len((await client.list_resource_templates()).resource_templates) == 1
        assert "ID: 7" in (await client.read_resource("test://template/7/data")).contents[0].text
        assert len((await client.list_prompts()).prompts) == 4
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert "arg1='a', arg2='b'" in prompt.messages[0].content.text
        named = PromptReference(name="test_prompt_with_arguments")
        completed = await client.complete(named, {"name": "arg1", "value": "par"})
        assert completed.completion.values == ["paris", "park", "party"]
        await client.session.set_logging_level("info")
        await client.session.subscribe_resource("test://watched-resource")
        await visit.until("PromptListChangedNotification")
        await client.session.unsubscribe_resource("test://watched-resource")
        await client.call_tool("test_tool_with_logging")
        assert "ada@example.org" in (await client.call_tool("test_elicitation", {"message": "Who?"})).content[0].text
        # what is denied, unknown, or asked in vain
        denied = await client.call_tool("test_error_handling")
        assert (denied.is_error, denied.meta["deedbook/error"]["code"]) == (True, "GATE_DENIED")
        assert (await refused(client.read_resource("test://static-binary"))).data["code"] == "GATE_DENIED"
        assert (await refused(client.read_resource("test://nothing"))).code == -32602
        assert (await refused(client.call_tool("resources/read", {"uri": "test://static-binary"}))).code == -32602
        assert (await client.call_tool("test_sampling", {"prompt": "?"})).meta["deedbook/error"][
            "code"
        ] == "MCP_REFUSED"

    visit.connect(gateway(place, deedbook_command, "--upstream", "it"), work)
    assert visit.asked == ["Who?"]
    assert visit.progress == [(0, 100, "step 0"), (50, 100, "step 50"), (100, 100, "step 100")]
    assert [each.uri for each in visit.heard("ResourceUpdatedNotification")] == ["test://watched-resource"]
    assert [each.data for each in visit.heard("LoggingMessageNotification")] == [
        "Tool execution started", "Tool processing data", "Tool execution completed",
    ]  # fmt: skip
    assert outcomes(latest(place)) == [
        ("it/test_simple_text", "allow", "tool.result"),
        ("it/test_tool_with_progress", "allow", "tool.result"),
        ("it/resources/list", "allow", "tool.result"),
        ("it/resources/templates/list", "allow", "tool.result"),
        ("it/resources/read", "allow", "tool.result"),
        ("it/prompts/list", "allow", "tool.result"),
        ("it/prompts/get", "allow", "tool.result"),
        ("it/completion/complete", "allow", "tool.result"),
        ("it/logging/setLevel", "allow", "tool.result"),
        ("it/resources/subscribe", "allow", "tool.result"),
        ("it/resources/unsubscribe", "allow", "tool.result"),
        ("it/test_tool_with_logging", "allow", "tool.result"),
        ("it/test_elicitation", "allow", "tool.result"),
        ("it/elicitation/create", "allow", "tool.result"),
        ("it/test_error_handling", "deny", None),
        ("it/resources/read", "deny", None),
        ("it/resources/read", "allow", "tool.error"),
        ("it: resources/read", "none", None),
        ("it/test_sampling", "allow", "tool.error"),
    ]
    answer = next(each for each in latest(place) if each.payload.get("result") and "action" in each.payload["result"])
    assert answer.payload["result"]["content"] == {"username": "ada", "email": "ada@example.org"}


def test_gateway_over_http_gives_each_client_a_connection_of_its_own(place, deedbook_command):
    """What the server sends to one client besides answers never reaches another."""
    command = [deedbook_command, "mcp", "serve", "--upstream", "it", "--http", "127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True)
    visit, other = Visit(), Visit()
    try:
        url = re.search(r"http\S+", process.stderr.readline())[0]

        async def work(client):
            async with Client(url, mode="legacy", message_handler=other.hear) as second:
                await second.read_resource("test://static-text")
                await client.session.subscribe_resource("test://watched-resource")
                await visit.until("ResourceUpdatedNotification")
                await client.call_tool("test_tool_with_logging")
                assert "ada@" in (await client.call_tool("test_elicitation", {"message": "Who?"})).content[0].text
                # a client that cannot ask its person is not asked
                assert (await second.call_tool("test_elicitation", {"message": "Who?"})).is_error

        visit.connect(url, work)
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)
    assert (visit.asked, len(visit.heard("LoggingMessageNotification")), other.messages) == (["Who?"], 3, [])


def test_upstream_that_is_not_declared_is_an_error_that_names_those_that_are(tmp_path, deedbook_command):
    (tmp_path / ".system").mkdir()
    (tmp_path / ".system/deedbook.yaml").write_text("schema_version: v1\n")
    ran = subprocess.run(
        [deedbook_command, "mcp", "serve", "--upstream", "ti"], cwd=tmp_path, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "server 'ti' is not declared under servers:" in ran.stderr
    assert "Declared: none" in ran.stderr
