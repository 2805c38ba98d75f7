"""The streamable HTTP transport, on the SDK: only to the address in YAML, and nothing of the environment is used."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from deedbook.contracts import Failed

from .pipes import MOST

CONNECTING: Final = 30.0
READING: Final = 3600.0
"""Seconds between two bytes of an answer; the limit of a call is the ability's own."""


@asynccontextmanager
async def reached(url: str, headers: Mapping[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of messages from the server at *url* and to it."""
    limits = httpx2.Timeout(CONNECTING, read=READING)
    transport = Capped(httpx2.AsyncHTTPTransport())
    async with (
        httpx2.AsyncClient(transport=transport, headers=dict(headers), timeout=limits, trust_env=False) as http,
        streamable_http_client(url, http_client=http, max_sse_event_size=MOST) as streams,
    ):
        yield streams[0], streams[1]


class Capped(httpx2.AsyncBaseTransport):
    """Reads at most `MOST` bytes of an answer that is one document; of a stream the events are limited."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        response = await self._inner.handle_async_request(request)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _Counted(response.stream)
        return response

    async def aclose(self) -> None:
        """Close what was opened."""
        await self._inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MOST:
                raise Failed("OUTPUT_TOO_LARGE", f"an answer of more than {MOST} bytes", lost=True)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
