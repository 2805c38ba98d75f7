"""The official SDK, and what it may do: imported at the first call, and nothing of it leaves this module.

One client per call, closed with it: a call may run on any event loop, and a cancelled one has to close its connection.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import httpx2
import openai

from deedbook import IntakeError, NotJsonError, parse

from .merged import Merged
from .settings import Settings
from .trouble import Endpoint, Trouble

MAX_BYTES: Final = 16 * 1024 * 1024
"""How much an answer may hold, a whole stream included."""
LONGEST: Final = 600.0
"""Seconds to wait for the next bytes where the call itself has no limit."""
CONNECT: Final = 10.0
"""Seconds to wait for a connection."""
AGENT: Final = "deedbook-provider-openai"

_NO_KEY: Final = "none"  # any text: the SDK would look into the environment, and what is sent is decided below

Show = Callable[[str], None]


async def complete(
    body: Mapping[str, Any],
    settings: Settings,
    endpoint: Endpoint,
    headers: Mapping[str, str],
    seconds: float,
    show: Show,
) -> Any:
    """Send *body*; return the ``chat.completion`` that came, parsed and not yet read. Raises `Trouble`.

    *seconds* is what is left; *show* is called with each piece of text of a stream.
    """
    asked = dict(body) | ({"stream": True, "stream_options": {"include_usage": True}} if settings.stream else {})
    limit = openai.Timeout(min(seconds, LONGEST), connect=min(seconds, CONNECT))
    try:
        async with _client(settings, headers) as client:
            if settings.stream:
                return await _streamed(client, asked, settings.extra, limit, _Chunks(endpoint, show))
            return await _whole(client, asked, settings.extra, limit)
    except Trouble:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever the SDK raises, the caller learns it in our words
        raise explained(problem, endpoint) from None


def _client(settings: Settings, headers: Mapping[str, str]) -> Any:
    """Return a client that takes nothing from the environment, follows no redirect and tries once."""
    inner = httpx2.AsyncHTTPTransport(trust_env=False)
    http = httpx2.AsyncClient(transport=_Guarded(inner, headers), trust_env=False, follow_redirects=False)
    return openai.AsyncOpenAI(
        api_key=_NO_KEY, admin_api_key="", base_url=settings.base_url, max_retries=0, http_client=http
    )


async def _whole(client: Any, body: Mapping[str, Any], extra: Mapping[str, Any], limit: Any) -> Any:
    raw = await client.chat.completions.with_raw_response.create(**body, extra_body=dict(extra) or None, timeout=limit)
    answer = raw.http_response
    _expect(answer, "application/json")
    return _parsed(answer.content, "the endpoint's answer is refused")


async def _streamed(
    client: Any, body: Mapping[str, Any], extra: Mapping[str, Any], limit: Any, chunks: "_Chunks"
) -> Any:
    """Read the stream here and not in the SDK, which would take a key that stands twice in a chunk."""
    asked = client.chat.completions.with_streaming_response.create
    async with asked(**body, extra_body=dict(extra) or None, timeout=limit) as raw:
        _expect(raw.http_response, "text/event-stream")
        raw.http_response.encoding = "latin-1"  # a character for each byte: UTF-8 is for intake to check
        async for event in httpx2.EventSource(raw.http_response, max_event_size=None):
            if event.data.startswith("[DONE]"):
                break
            chunks.add(event.data.encode("latin-1"))
    return chunks.merged.completion()


class _Chunks:
    """Takes the chunks of a stream and shows their text."""

    def __init__(self, endpoint: Endpoint, show: Show) -> None:
        self.merged = Merged()
        self._endpoint, self._show = endpoint, show

    def add(self, raw: bytes) -> None:
        """Take one chunk; raises `Trouble`."""
        chunk = _parsed(raw, "the stream holds a chunk that is refused")
        if isinstance(chunk, Mapping) and chunk.get("error"):
            raise self._endpoint.broke_off(chunk)
        text = self.merged.add(chunk)
        if text:
            self._show(text)


def _parsed(raw: bytes | str, why: str) -> Any:
    try:
        return parse(raw)
    except IntakeError as problem:
        raise Trouble(f"{why}: {problem}", again=True, code=problem.error.code) from None


def _expect(answer: httpx2.Response, kind: str) -> None:
    given = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != kind:
        why = f"the endpoint answers with {given[:80] or 'no content type'} instead of {kind}"
        raise Trouble(f"{why}; see whether base_url is an address of this protocol, and stream: what it can do")


def explained(problem: Exception, endpoint: Endpoint) -> Trouble:
    """Return an exception of the SDK, or from below it, as what it means."""
    if isinstance(problem, openai.APIStatusError):
        return endpoint.refused(problem.status_code, problem.response.headers, _said(problem))
    if isinstance(problem, openai.APITimeoutError | httpx2.TimeoutException):
        return Trouble(f"{endpoint.base_url} did not answer in time; raise the model's timeout_ms", again=True)
    if isinstance(problem, openai.APIConnectionError | httpx2.TransportError):
        cause = endpoint.words(problem.__cause__ or problem)
        why = f"cannot be reached, or cut the connection ({cause}); see whether it runs and base_url is right"
        return Trouble(f"{endpoint.base_url} {why}", again=True)
    return Trouble(f"{endpoint.base_url}: {type(problem).__name__}: {endpoint.words(problem)}")


def _said(problem: openai.APIStatusError) -> object:
    """Return the body of a refusal, as intake reads it; the SDK has its own opinion of what is JSON."""
    try:
        return parse(problem.response.content)
    except NotJsonError:
        return problem.response.text
    except IntakeError as refused:
        return f"with an error that is refused: {refused}"


class _Guarded(httpx2.AsyncBaseTransport):
    """The way out: exactly *headers* are sent, whatever SDK and environment would add, and no answer is too large."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, headers: Mapping[str, str]) -> None:
        self._inner = inner
        self._headers = headers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        framing = {name: request.headers[name] for name in ("host", "content-length")}
        sent = httpx2.Request(
            request.method,
            request.url,
            headers={**framing, **self._headers},
            stream=request.stream,
            extensions=request.extensions,
        )
        response = await self._inner.handle_async_request(sent)
        coding = response.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            await response.aclose()
            raise Trouble(f"the endpoint answers with {coding[:40]!r} encoding, which was not asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """A body of at most `MAX_BYTES`."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_BYTES
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise Trouble(f"the endpoint's answer is larger than {MAX_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()
