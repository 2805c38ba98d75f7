"""A small server that speaks the published protocol over real HTTP, strict about what it is sent, scripted per test."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest

from deedbook import Principal
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.plugins.host import WorkspaceHost
from deedbook_provider_openai import OpenAI

PUBLISHED = jsonschema_rs.validator_for(json.loads((Path(__file__).parent / "chat_completions.json").read_text()))
KEY = "sk-local-0123456789abcdef"
FOREVER = 30.0

Action = Callable[["Handler"], None]


class Endpoint:
    """One server. *script* holds what it does next, as actions or functions of the body that return one."""

    def __init__(self) -> None:
        self.script: deque[Any] = deque()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.faults: list[str] = []
        self.left = threading.Event()  # the client of a hanging request has gone
        self.always: Callable[[dict[str, Any]], Action] | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.endpoint = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def plays(self, *actions: Any) -> None:
        self.script.extend(actions)

    def next(self, body: dict[str, Any]) -> Action:
        if self.always is not None:
            return self.always(body)
        return self.script.popleft() if self.script else error(500, "the script of this test is over")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Handler(BaseHTTPRequestHandler):
    """Reads one request, checks it, and plays the next action."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        endpoint = self.server.endpoint
        raw = self.rfile.read(int(self.headers["content-length"]))
        body = json.loads(raw)
        endpoint.bodies.append(body)
        endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
        endpoint.paths.append(self.path)
        faults = [*(f"{each.instance_path}: {each.message}" for each in PUBLISHED.iter_errors(body)), *meaning(body)]
        if self.path != "/v1/chat/completions" or self.headers["content-type"] != "application/json":
            faults.append(f"{self.path} with {self.headers['content-type']}")
        endpoint.faults.extend(faults)
        if faults:
            error(400, "; ".join(faults))(self)
            return
        endpoint.next(body)(self)

    def send(self, status: int, kind: str, raw: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(raw)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def meaning(body: dict[str, Any]) -> Iterator[str]:
    """Yield what the published API refuses though it has the right shape."""
    open_calls: list[str] = []
    for message in body.get("messages", ()):
        if message.get("role") == "tool":
            if message["tool_call_id"] not in open_calls:
                yield f"tool_call_id {message['tool_call_id']} answers no call before it"
            else:
                open_calls.remove(message["tool_call_id"])
        else:
            yield from (f"call {call} was not answered" for call in open_calls)
            open_calls = [call["id"] for call in message.get("tool_calls", ())]
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    if len(set(names)) < len(names):
        yield f"two tools have one name: {names}"
    form = body.get("response_format", {})
    if form.get("type") == "json_object" and not any("JSON" in (said["content"] or "") for said in body["messages"]):
        yield "'messages' must contain the word 'json' in some form"
    if form.get("json_schema", {}).get("strict"):
        yield from not_strict(form["json_schema"]["schema"], "schema")


def not_strict(schema: dict[str, Any], at: str) -> Iterator[str]:
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False or schema["required"] != list(schema["properties"]):
            yield f"{at}: a strict object requires all its properties and permits no others"
        for name, part in schema["properties"].items():
            yield from not_strict(part, f"{at}.{name}")
    if schema.keys() - {"type", "description", "title", "enum", "const", "properties", "required", "items", "minItems",
                        "maxItems", "additionalProperties"}:  # fmt: skip
        yield f"{at}: {sorted(schema)}"
    if "items" in schema:
        yield from not_strict(schema["items"], f"{at}[]")


# --- what the server does ---------------------------------------------------------------------------------------------

USAGE = {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}


def call(name: str, arguments: Any, call_id: str = "call_abc") -> dict[str, Any]:
    told = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": told}}


def completion(content: str | None = "Hello!", calls: Any = (), finish: str = "", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": None, "annotations": []}
    choice = {
        "index": 0,
        "message": message | ({"tool_calls": list(calls)} if calls else {}),
        "logprobs": None,
        "finish_reason": finish or ("tool_calls" if calls else "stop"),
    }
    usage = {"usage": USAGE}
    head = {"id": "chatcmpl-B9MBs8", "object": "chat.completion", "created": 1741569952, "model": "gpt-x-2026-01-01"}
    return {**head, "choices": [choice], **usage, "service_tier": "default", **more}


def answer(*told: Any, headers: dict[str, str] | None = None, **more: Any) -> Action:
    raw = json.dumps(completion(*told, **more)).encode()
    return lambda handler: handler.send(200, "application/json", raw, **(headers or {}))


def body(value: Any, status: int = 200, kind: str = "application/json") -> Action:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return lambda handler: handler.send(status, kind, raw)


def error(status: int, message: str = "no", code: str | None = None, **headers: str) -> Action:
    told = {"error": {"message": message, "type": "some_error", "param": None, "code": code}}
    return lambda handler: handler.send(status, "application/json", json.dumps(told).encode(), **headers)


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    head = {"id": "chatcmpl-123", "object": "chat.completion.chunk", "created": 1694268190, "model": "gpt-x-2026-01-01"}
    return (
        b"data: "
        + json.dumps({**head, "choices": choices, "usage": None, **more}, ensure_ascii=False).encode()
        + b"\n\n"
    )


DONE = b"data: [DONE]\n\n"


def sse(*parts: bytes, cut: bool = False) -> Action:
    """Send a stream, chunk by chunk; *cut* closes the connection before the body's end."""

    def play(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            handler.wfile.flush()
        if not cut:
            handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = cut

    return play


def cut(handler: Handler) -> None:
    """Promise more than is sent, and close."""
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"id": "chatc')
    handler.close_connection = True


def hang(handler: Handler) -> None:
    """Answer nothing until the client goes away."""
    handler.connection.settimeout(FOREVER)
    if handler.connection.recv(1) == b"":
        handler.server.endpoint.left.set()
    handler.close_connection = True


# --- fixtures ---------------------------------------------------------------------------------------------------------


class Ctx:
    """A call's context: so many *seconds* are left, and what is shown is kept."""

    principal = Principal("agent:worker", "test")
    session = "s"
    idempotency_key = "k"

    def __init__(self, seconds: float = FOREVER) -> None:
        self.seconds = seconds
        self.shown: list[Any] = []

    def remaining(self) -> float:
        return self.seconds

    def progress(self, delta: Any) -> None:
        self.shown.append(delta)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Run a server; what it was sent and should not have been fails the test."""
    made = Endpoint()
    yield made
    made.close()
    assert made.faults == []


@pytest.fixture
def say() -> SimpleNamespace:
    """Return what a server can be told to do."""
    names = (answer, body, call, chunk, completion, cut, error, hang, sse)
    return SimpleNamespace(**{made.__name__: made for made in names}, DONE=DONE, USAGE=USAGE, KEY=KEY)


@pytest.fixture(scope="session")
def schemas() -> Schemas:
    return Schemas.load(data_folder("schemas"))


@pytest.fixture
def ask(endpoint: Endpoint, schemas: Schemas, tmp_path: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return what sends a request through the provider, as the kernel does, and checks both ends."""
    with Folder.at(tmp_path) as folder:
        host = WorkspaceHost(folder, ["."], [], {"main": KEY, "bad": "sk-line\n", "gateway": "gw-secret-77"}, schemas)

        def asked(request: Any = "Hi", ctx: Ctx | None = None, **settings: Any) -> dict[str, Any]:
            told = request if isinstance(request, dict) else {"messages": [{"role": "user", "content": request}]}
            full = {"model": "gpt-x", "schema_version": "v2", **told}
            assert schemas.validator("completion_request_v2").violations(full) == ()
            provider = OpenAI({"base_url": endpoint.url, "key": "main", **settings}, host)
            made = asyncio.run(provider(full, ctx or Ctx()))
            assert schemas.validator("completion_response_v2").violations(made) == ()
            return made

        yield asked


@pytest.fixture
def ctx() -> type[Ctx]:
    return Ctx
