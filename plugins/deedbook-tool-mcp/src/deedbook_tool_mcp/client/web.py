"""The streamable HTTP transport, on the SDK: only to the address in YAML, without the environment's proxies.

Answers pass the kernel's intake before the SDK sees them, and are not compressed, so that their size is known.
"""

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from deedbook_tool_mcp.messages import RefusedMessage, build_refusal, find_id, parse_message

from .pipes import MAX_MESSAGE

CONNECTING: Final = 30.0
READING: Final = 3600.0
"""Seconds between two bytes of an answer; the call has its own limit."""
_PLAIN: Final = {"accept-encoding": "identity"}
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"


@asynccontextmanager
async def open_streams(url: str, headers: Mapping[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of messages from the server at *url* and to it."""
    limits = httpx2.Timeout(CONNECTING, read=READING)
    transport = CheckedTransport(httpx2.AsyncHTTPTransport(verify=_trust(*map(os.environ.get, _CERTIFICATES))))
    async with (
        httpx2.AsyncClient(transport=transport, headers={**headers, **_PLAIN}, timeout=limits, trust_env=False) as http,
        streamable_http_client(url, http_client=http, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams[0], streams[1]


@cache
def _trust(*_certificates: str | None) -> ssl.SSLContext:
    """Return the certificates to trust, read once: reading them takes longer than a whole request."""
    return httpx2.create_ssl_context()


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Accepts a document of at most `MAX_MESSAGE` bytes, and events of at most that size, after intake."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        response = await self._inner.handle_async_request(request)
        request_id = find_id(request.content) if request.method == "POST" else None
        kind = response.headers.get("content-type", "").lower()
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            why = build_refusal("it is compressed, though it was asked not to be", request_id, code="OUTPUT_REFUSED")
            return httpx2.Response(200, headers={"content-type": _JSON}, content=_encode_error(why), request=request)
        if kind.startswith(_EVENTS):
            response.headers["content-type"] = _EVENTS  # events are always UTF-8
            response.stream = _Events(response.stream, request, request_id)
        else:
            response.stream = _Document(response.stream, request_id, is_json=kind.startswith(_JSON))
        return response

    async def aclose(self) -> None:
        """Close the transport inside."""
        await self._inner.aclose()


class _Document(httpx2.AsyncByteStream):
    """A body that is one document; refused JSON becomes an error that answers *request_id*."""

    def __init__(self, inner: Any, request_id: str | int | None, *, is_json: bool) -> None:
        self._inner, self._request_id, self._is_json = inner, request_id, is_json

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for chunk in self._inner:
            body += chunk
            if len(body) > MAX_MESSAGE:
                yield _encode_error(
                    build_refusal(f"more than {MAX_MESSAGE} bytes", self._request_id, code="OUTPUT_TOO_LARGE")
                )
                return
        yield _check(bytes(body), self._request_id) or b"" if self._is_json and body else bytes(body)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Events(httpx2.AsyncByteStream):
    """A stream of events, each encoded again: the SDK reads exactly the checked text."""

    def __init__(self, inner: Any, request: httpx2.Request, request_id: str | int | None) -> None:
        self._inner, self._request_id = inner, request_id
        # Latin-1 has a character for each byte; intake checks that they are UTF-8.
        self._response = httpx2.Response(
            200, headers={"content-type": _EVENTS}, stream=inner, request=request, default_encoding="latin-1"
        )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in httpx2.EventSource(self._response, max_event_size=MAX_MESSAGE):
            data = event.data.encode("latin-1")
            checked = _check(data, self._request_id) if data and event.event == "message" else data
            if checked is not None:
                yield _encode_event(event, checked)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _check(raw: bytes, request_id: str | int | None) -> bytes | None:
    """Return *raw* if intake accepts it, else an error in its place; ``None`` if no request waits for it."""
    try:
        parse_message(raw)
    except RefusedMessage as problem:
        answers = problem.is_answer or problem.id is None
        problem.id = problem.id if request_id is None else request_id
        return _encode_error(problem) if answers else None
    return raw


def _encode_error(problem: RefusedMessage) -> bytes:
    return problem.build_reply().model_dump_json(by_alias=True).encode()


def _encode_event(event: httpx2.ServerSentEvent, data: bytes) -> bytes:
    fields = [("event", event.event), ("id", event.id), *([("retry", str(event.retry))] if event.retry else [])]
    lines = [f"{name}: {value}".encode("latin-1") for name, value in fields if value]
    return b"\n".join([*lines, *(b"data: " + line for line in data.split(b"\n")), b"", b""])
