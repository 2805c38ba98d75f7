"""A small server that speaks the published protocol over real HTTP, strict about what it is sent, scripted per test."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.plugins.host import WorkspaceHost
from deedbook_provider_openai import OpenAI
from deedbook_testing.endpoints import Action, ChatCompletions, Endpoint
from deedbook_testing.endpoints.server import cut_short, document, hang, stream
from deedbook_testing.hosted import WatchedCall

PROTOCOL = ChatCompletions()
KEY = "sk-local-0123456789abcdef"


class Place(Endpoint):
    """A server whose address ends in ``/v1``, stricter about schemas than its protocol."""

    def __init__(self) -> None:
        super().__init__(lambda path, headers, body: [*PROTOCOL.faults(path, headers, body), *meaning(body)])

    @property
    def url(self) -> str:
        return PROTOCOL.address(super().url)


def meaning(body: dict[str, Any]) -> Iterator[str]:
    """Yield what the published API refuses though it has the right shape."""
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
    sent = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
    return document(completion(*told, **more), headers=sent)


def body(value: Any, status: int = 200, kind: str = "application/json") -> Action:
    return document(value, status=status, kind=kind)


def error(status: int, message: str = "no", code: str | None = None, **headers: str) -> Action:
    told = {"error": {"message": message, "type": "some_error", "param": None, "code": code}}
    return document(told, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


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
    return stream(parts, kind="text/event-stream; charset=utf-8", cut=cut)


# --- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Run a server; what it was sent and should not have been fails the test."""
    made = Place()
    yield made
    made.close()
    assert made.found == []


@pytest.fixture
def say() -> SimpleNamespace:
    """Return what a server can be told to do."""
    names = (answer, body, call, chunk, completion, error, hang, sse)
    told = {made.__name__: made for made in names}
    return SimpleNamespace(**told, cut=cut_short, DONE=DONE, USAGE=USAGE, KEY=KEY)


@pytest.fixture(scope="session")
def schemas() -> Schemas:
    return Schemas.load(data_folder("schemas"))


@pytest.fixture
def ask(endpoint: Endpoint, schemas: Schemas, tmp_path: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return what sends a request through the provider, as the kernel does, and checks both ends."""
    with Folder.at(tmp_path) as folder:
        host = WorkspaceHost(folder, ["."], [], {"main": KEY, "bad": "sk-line\n", "gateway": "gw-secret-77"}, schemas)

        def asked(request: Any = "Hi", ctx: WatchedCall | None = None, **settings: Any) -> dict[str, Any]:
            told = request if isinstance(request, dict) else {"messages": [{"role": "user", "content": request}]}
            full = {"model": "gpt-x", "schema_version": "v2", **told}
            assert schemas.validator("completion_request_v2").violations(full) == ()
            provider = OpenAI({"base_url": endpoint.url, "key": "main", **settings}, host)
            made = asyncio.run(provider(full, ctx or WatchedCall()))
            assert schemas.validator("completion_response_v2").violations(made) == ()
            return made

        yield asked


@pytest.fixture
def ctx() -> type[WatchedCall]:
    return WatchedCall
