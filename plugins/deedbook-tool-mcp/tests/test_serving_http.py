"""The real command over HTTP: who may connect, on whose behalf, and what web pages and strangers are told."""

import json
import os
import re
import subprocess
import time

import anyio
import click
import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from deedbook.format.files import Folder
from deedbook.format.reader import list_sessions, read
from deedbook_tool_mcp.serving.http import HttpAddress

MODES = ("legacy", "2026-07-28")
SETTINGS = """
schema_version: v1
abilities:
  say/echo: {summary: Give back what is said., handler: {tool: echo}}
principals:
  ada: {roles: [approver]}
  bob: {roles: []}
secrets:
  ada_token: {env: SERVE_ADA}
  bob_token: {env: SERVE_BOB}
agents:
  desk: {expose: {abilities: say/*}}
"""
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}  # fmt: skip


class Web:
    """The command at a port of its own; ada and bob have a token each."""

    def __init__(self, path, command):
        self.path = path
        args = ["--client", "desk", "--http", "127.0.0.1:0", "--token", "ada=ada_token", "--token", "bob=bob_token"]
        self.process = subprocess.Popen(
            [command, "mcp", "serve", *args], cwd=path, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "SERVE_ADA": "token-of-ada", "SERVE_BOB": "token-of-bob"},
        )  # fmt: skip
        self.url = re.search(r"http\S+", self.process.stderr.readline())[0]

    def post(self, body, who="ada", **headers):
        """Post *body* as it is, or as JSON, and return the response."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        token = {"authorization": f"Bearer token-of-{who}"} if who else {}
        return httpx.post(self.url, content=raw, headers={**JSON, **token, **headers}, timeout=20)

    def connect(self, work, who, mode):
        """Do *work* with the SDK's client, connected with a token."""

        async def main():
            token = {"authorization": f"Bearer token-of-{who}"}
            async with (
                httpx.AsyncClient(headers=token) as http,
                Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
            ):
                return await work(client)

        return anyio.run(main)

    def sessions(self):
        with Folder.at(self.path / ".deedbook") as state:
            return [(each, list(read(self.path / ".deedbook/sessions" / each.id))) for each in list_sessions(state)]


@pytest.fixture(scope="module")
def web(tmp_path_factory, deedbook_command):
    path = tmp_path_factory.mktemp("web")
    (path / ".system").mkdir()
    (path / ".system/deedbook.yaml").write_text(SETTINGS)
    made = Web(path, deedbook_command)
    yield made
    made.process.terminate()
    _, err = made.process.communicate(timeout=30)
    assert (made.process.returncode, "Traceback" in err) == (0, False), err
    assert {each.state for each, _ in made.sessions()} == {"ended"}
    assert subprocess.run([deedbook_command, "verify"], cwd=path, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("who", ["ada", "bob"])
def test_call_is_recorded_on_behalf_of_whose_token_it_came_with(web, mode, who):
    async def call(client):
        assert [tool.name for tool in (await client.list_tools()).tools] == ["say__echo"]
        return await client.call_tool("say__echo", {"text": f"{who} {mode}"})

    assert web.connect(call, who, mode).structured_content == {"text": f"{who} {mode}"}
    (events,) = [
        events for _, events in web.sessions()
        if any(event.type == "tool.call" and event.payload["args"] == {"text": f"{who} {mode}"} for event in events)
    ]  # fmt: skip
    principal = events[0].payload["principal"]
    assert (principal["id"], principal["on_behalf_of"], principal["via"]) == ("agent:desk", who, "mcp")


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer nonsense"}, {"authorization": "Basic token-of-ada"}])
def test_stranger_is_not_let_in(web, headers):
    before = len(web.sessions())
    answer = web.post(HELLO, None, **headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert len(web.sessions()) == before


@pytest.mark.parametrize("version", [None, "2026-07-28"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "evil.example"}, 421), ({"origin": "http://evil.example"}, 403), ({"content-type": "text/plain"}, 400)],
)
def test_web_page_that_rebinds_a_name_is_refused(web, version, headers, status):
    more = {"mcp-protocol-version": version} if version else {}
    assert web.post(HELLO, **{**headers, **more}).status_code == status


@pytest.mark.parametrize("version", [None, "2026-07-28"])
@pytest.mark.parametrize(
    "body", [b"no json", b"\xff\xfe", b"[]", b"1", b'{"a":' * 100_000, b'{"jsonrpc":"2.0","id":1,"method":7}']
)
def test_garbage_has_an_answer_and_ends_nothing(web, version, body):
    answer = web.post(body, **({"mcp-protocol-version": version} if version else {}))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in (-32700, -32600, -32602)


@pytest.mark.parametrize("version", [None, "2026-07-28"])
@pytest.mark.parametrize("arguments", [b'{"text":"deny","text":"allow"}', b'{"text":NaN}', b'{"text":"\\udc00"}'])
def test_arguments_that_intake_refuses_run_nothing(web, version, arguments):
    before = len(web.sessions())
    call = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"say__echo","arguments":%b}}' % arguments
    answer = web.post(call, **({"mcp-protocol-version": version} if version else {}))
    assert (answer.status_code, answer.json()["id"]) == (400, 7)
    assert answer.json()["error"]["data"]["code"] == "INTAKE_REFUSED"
    assert len(web.sessions()) == before


def test_message_that_is_too_large_is_refused_before_it_is_read(web):
    assert web.post(b"x" * (17 * 1024 * 1024)).status_code == 413


def test_session_of_one_principal_is_not_there_for_another(web):
    identity = web.post(HELLO).headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert web.post(ping, "bob", **{"mcp-session-id": identity}).status_code == 404
    assert web.post(ping, "ada", **{"mcp-session-id": identity}).status_code == 200


def test_session_ends_when_the_client_ends_it(web):
    identity = web.post(HELLO).headers["mcp-session-id"]
    mine = {"mcp-session-id": identity, "mcp-protocol-version": "2025-11-25"}
    web.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **mine)
    call = {"name": "say__echo", "arguments": {"text": "to be deleted"}}
    web.post({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}, **mine)
    token = {"authorization": "Bearer token-of-ada"}
    assert httpx.delete(web.url, headers={**mine, **token}).status_code == 200

    def last():
        (events,) = [
            events for _, events in web.sessions()
            if any(event.type == "tool.call" and "deleted" in str(event.payload["args"]) for event in events)
        ]  # fmt: skip
        return events[-1]

    limit = time.monotonic() + 10
    while last().type != "session.end" and time.monotonic() < limit:
        time.sleep(0.02)
    assert last().payload["reason"] == "the client has ended it"


# --- where it listens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "tokens", "names", "why"),
    [
        ("0.0.0.0:8080", (), (), "only with --token"),
        ("10.0.0.7:8080", (), (), "only with --token"),
        ("example.org:80", (), (), "only with --token"),
        ("0.0.0.0:8080", ("ada=ada_token",), (), "--allow-host"),
        ("[::]:8080", ("ada=ada_token",), (), "--allow-host"),
        ("127.0.0.1", (), (), "HOST:PORT"),
        ("127.0.0.1:http", (), (), "HOST:PORT"),
        ("127.0.0.1:99999", (), (), "HOST:PORT"),
        (f"127.0.0.1:{'9' * 5000}", (), (), "HOST:PORT"),
        ("127.0.0.1:\u0663", (), (), "HOST:PORT"),
        ("127.0.0.1:8080", ("ada=nothing",), (), "no secret 'nothing'"),
        ("127.0.0.1:8080", ("ada",), (), "no secret ''"),
    ],
)
def test_address_that_is_not_safe_is_refused(lab, monkeypatch, where, tokens, names, why):
    monkeypatch.setenv("SERVE_ADA", "token-of-ada")
    lab.settings(secrets={"ada_token": {"env": "SERVE_ADA"}}, principals={"ada": {"roles": []}})
    with pytest.raises(click.UsageError) as problem:
        HttpAddress.parse(where, tokens, names, lab.kernel())
    assert why in problem.value.message


@pytest.mark.parametrize(
    ("where", "hosts"),
    [
        ("127.0.0.1:80", ["127.0.0.1", "127.0.0.1:9", "localhost", "localhost:9", "[::1]", "[::1]:9"]),
        ("[::1]:80", ["127.0.0.1", "127.0.0.1:9", "localhost", "localhost:9", "[::1]", "[::1]:9"]),
        ("10.0.0.7:80", ["10.0.0.7", "10.0.0.7:9"]),
    ],
)
def test_only_names_of_this_server_are_its_hosts(lab, monkeypatch, where, hosts):
    monkeypatch.setenv("SERVE_ADA", "token-of-ada")
    lab.settings(secrets={"ada_token": {"env": "SERVE_ADA"}}, principals={"ada": {"roles": []}})
    allowed = HttpAddress.parse(where, ("ada=ada_token",), ("desk.example",), lab.kernel()).build_security(9)
    assert set(allowed.allowed_hosts) == {*hosts, "desk.example", "desk.example:9"}
    assert all(origin.split("://")[1] in allowed.allowed_hosts for origin in allowed.allowed_origins)
