"""The streamable HTTP transport, on the SDK: only to the address in YAML, and nothing of the environment is used.

Answers pass the kernel's intake before the SDK sees them, and are not compressed, so that their size is known.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from .messages import Refused, identity, intake, refusal
from .pipes import MOST

CONNECTING: Final = 30.0
READING: Final = 3600.0
"""Seconds between two bytes of an answer; the limit of a call is the ability's own."""
_PLAIN: Final = {"accept-encoding": "identity"}
_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"


@asynccontextmanager
async def reached(url: str, headers: Mapping[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of messages from the server at *url* and to it."""
    limits = httpx2.Timeout(CONNECTING, read=READING)
    transport = Checked(httpx2.AsyncHTTPTransport())
    async with (
        httpx2.AsyncClient(transport=transport, headers={**headers, **_PLAIN}, timeout=limits, trust_env=False) as http,
        streamable_http_client(url, http_client=http, max_sse_event_size=MOST) as streams,
    ):
        yield streams[0], streams[1]


class Checked(httpx2.AsyncBaseTransport):
    """Lets through what intake accepts: of a document at most `MOST` bytes, of a stream as many of each event."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        response = await self._inner.handle_async_request(request)
        asked = identity(request.content) if request.method == "POST" else None
        kind = response.headers.get("content-type", "").lower()
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            why = refusal("it is compressed, though it was asked not to be", asked, code="OUTPUT_REFUSED")
            return httpx2.Response(200, headers={"content-type": _JSON}, content=_spelled_error(why), request=request)
        if kind.startswith(_EVENTS):
            response.headers["content-type"] = _EVENTS  # they are UTF-8, whatever charset is named
            response.stream = _Events(response.stream, request, asked)
        else:
            response.stream = _Document(response.stream, asked, is_json=kind.startswith(_JSON))
        return response

    async def aclose(self) -> None:
        """Close what was opened."""
        await self._inner.aclose()


class _Document(httpx2.AsyncByteStream):
    """A body that is one document; JSON that is refused becomes an error that answers the request *asked*."""

    def __init__(self, inner: Any, asked: str | int | None, *, is_json: bool) -> None:
        self._inner, self._asked, self._is_json = inner, asked, is_json

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for chunk in self._inner:
            body += chunk
            if len(body) > MOST:
                yield _spelled_error(refusal(f"more than {MOST} bytes", self._asked, code="OUTPUT_TOO_LARGE"))
                return
        yield _checked(bytes(body), self._asked) or b"" if self._is_json and body else bytes(body)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Events(httpx2.AsyncByteStream):
    """A stream of events, each spelled anew: what the SDK reads is what was checked."""

    def __init__(self, inner: Any, request: httpx2.Request, asked: str | int | None) -> None:
        self._inner, self._asked = inner, asked
        # Latin-1 has a character for each byte: whether they are UTF-8 is for intake to say.
        self._response = httpx2.Response(
            200, headers={"content-type": _EVENTS}, stream=inner, request=request, default_encoding="latin-1"
        )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in httpx2.EventSource(self._response, max_event_size=MOST):
            data = event.data.encode("latin-1")
            checked = _checked(data, self._asked) if data and event.event == "message" else data
            if checked is not None:
                yield _spelled(event, checked)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _checked(raw: bytes, asked: str | int | None) -> bytes | None:
    """Return *raw* if intake accepts it, else an error in its place; ``None`` for what nobody waits for."""
    try:
        intake(raw)
    except Refused as problem:
        answers = problem.answers or problem.id is None
        problem.id = problem.id if asked is None else asked
        return _spelled_error(problem) if answers else None
    return raw


def _spelled_error(problem: Refused) -> bytes:
    return problem.reply().model_dump_json(by_alias=True).encode()


def _spelled(event: httpx2.ServerSentEvent, data: bytes) -> bytes:
    fields = [("event", event.event), ("id", event.id), *([("retry", str(event.retry))] if event.retry else [])]
    lines = [f"{name}: {value}".encode("latin-1") for name, value in fields if value]
    return b"\n".join([*lines, *(b"data: " + line for line in data.split(b"\n")), b"", b""])
