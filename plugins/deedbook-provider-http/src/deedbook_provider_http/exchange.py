"""One request and its answer as bytes, whatever an SDK makes of them.

An SDK gets an HTTP client that sends one request with exactly our headers, follows no redirect, takes nothing from the
environment, and reads the answer itself, at most `MAX_BYTES`. The SDK sees an empty body: SDKs take JSON that intake
refuses, and fail in words of their own where an answer is not what they expect.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from typing import Final

import httpx2

from deedbook import IntakeError, Json, NotJsonError, parse

from .trouble import Endpoint, Trouble

MAX_BYTES: Final = 16 * 1024 * 1024
"""How much an answer may hold, a whole stream included."""
SILENCE: Final = 600.0
"""Seconds to wait for the next bytes where the call itself has no limit."""
LONGEST: Final = 3600.0
"""Seconds that a whole answer may take where the call itself has no limit."""
CONNECT: Final = 10.0
"""Seconds to wait for a connection."""

Send = Callable[[httpx2.AsyncClient, httpx2.Timeout], Awaitable[None]]
Refused = Callable[[int, Mapping[str, str], object], Trouble]


class Exchange:
    """One request, sent with exactly *headers*, and its answer, which has to have the content type *kind*.

    *take* gets the bytes of a good answer as they arrive, and returns whether the rest does not matter.
    """

    def __init__(self, headers: Mapping[str, str], kind: str, take: Callable[[bytes], bool] | None = None) -> None:
        self.headers = headers
        self.kind = kind
        self.take = take
        self.sent = False
        self.ended = False
        self.problem: Exception | None = None
        self.status: int | None = None
        self.answer_headers: Mapping[str, str] = {}
        self.body = bytearray()

    @property
    def good(self) -> bool:
        """Whether the endpoint answers, and not with an error."""
        return self.status is not None and 200 <= self.status < 300

    async def run(self, send: Send, endpoint: Endpoint, seconds: float, refused: Refused) -> None:
        """Let *send* send the request, within *seconds*; raises `Trouble` unless a whole good answer came."""
        limit = httpx2.Timeout(min(seconds, SILENCE), connect=min(seconds, CONNECT))
        try:
            async with asyncio.timeout(min(seconds, LONGEST)):
                inner = httpx2.AsyncHTTPTransport(verify=read_trust(), trust_env=False)
                transport = _Guarded(inner, self, endpoint)
                async with httpx2.AsyncClient(
                    transport=transport, trust_env=False, follow_redirects=False, timeout=limit
                ) as client:
                    await send(client, limit)
        except Trouble:
            raise
        except Exception as problem:  # noqa: BLE001 - whatever an SDK raises, the caller learns it in our words
            if not self.ended and self.problem is None:
                raise translate_failure(problem, endpoint) from None
        if self.problem is not None:
            raise translate_failure(self.problem, endpoint)
        if self.good and self.ended:
            return
        if self.ended and self.status is not None:
            raise refused(self.status, self.answer_headers, _error_body(bytes(self.body)))
        raise Trouble(f"{endpoint.base_url}: the SDK sent nothing, or did not read the answer")


@cache
def read_trust() -> ssl.SSLContext:
    """Return the certificates that the system trusts, read once: reading them takes longer than a whole request."""
    return httpx2.create_ssl_context(trust_env=False)


def read_json(raw: bytes, why: str) -> Json:
    """Return parsed JSON; what intake refuses is a `Trouble` that begins with *why*."""
    if not raw:
        raise Trouble(f"{why}: it is empty; expected a JSON object", again=True, code="INTAKE_REFUSED")
    try:
        found: Json = parse(raw)
    except IntakeError as problem:
        raise Trouble(f"{why}: {problem}", again=True, code=problem.error.code) from None
    return found


def translate_failure(problem: BaseException, endpoint: Endpoint) -> Trouble:
    """Return what went wrong before a whole answer was there, by the HTTP library's exception behind *problem*."""
    causes = [*_chain(problem)]
    for each in causes:
        if isinstance(each, Trouble):
            return each
    if any(isinstance(each, httpx2.TimeoutException | TimeoutError) for each in causes):
        return Trouble(f"{endpoint.base_url} did not answer in time; raise the model's timeout_ms", again=True)
    for each in causes:
        if isinstance(each, httpx2.TransportError):
            cause = endpoint.words(each.__cause__ or each)
            why = f"cannot be reached, or cut the connection ({cause}); see whether it runs and base_url is right"
            return Trouble(f"{endpoint.base_url} {why}", again=True)
    return Trouble(f"{endpoint.base_url}: {type(problem).__name__}: {endpoint.words(problem)}")


def _chain(problem: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while problem is not None and problem not in found:
        found.append(problem)
        problem = problem.__cause__ or problem.__context__
    return found


def _error_body(raw: bytes) -> object:
    """Return the body of a refusal, as intake reads it; SDKs have their own opinion of what is JSON."""
    try:
        return parse(raw)
    except NotJsonError:
        return raw.decode(errors="replace")
    except IntakeError as refused:
        return f"with an error that is refused: {refused}"


class _Guarded(httpx2.AsyncBaseTransport):
    """The way out: one request to one address, exactly the exchange's headers, and no answer that is too large."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, exchange: Exchange, endpoint: Endpoint) -> None:
        self._inner = inner
        self._exchange = exchange
        self._endpoint = endpoint

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        exchange = self._exchange
        if exchange.sent:
            raise Trouble("the SDK tried to send a second request, which providers do not")
        to, wanted = request.url, httpx2.URL(self._endpoint.base_url)
        if (to.scheme, to.host, to.port) != (wanted.scheme, wanted.host, wanted.port):
            raise Trouble(f"the SDK tried to send the request to {to.host} instead of {wanted.host}")
        exchange.sent = True
        framing = {name: request.headers[name] for name in ("host", "content-length")}
        sent = httpx2.Request(
            request.method,
            request.url,
            headers={**framing, **exchange.headers},
            stream=request.stream,
            extensions=request.extensions,
        )
        response = await self._inner.handle_async_request(sent)
        try:
            _check(response, exchange, self._endpoint)
        except Trouble:
            await response.aclose()
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Tapped(response.stream, exchange)
        return response

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()


def _check(response: httpx2.Response, exchange: Exchange, endpoint: Endpoint) -> None:
    exchange.status, exchange.answer_headers = response.status_code, response.headers
    coding = response.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        why = f"the endpoint answers with {endpoint.words(coding)!r} encoding, which was not asked for"
        raise Trouble(f"{why}; see what answers at base_url, such as a proxy")
    given = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if exchange.good and given != exchange.kind:
        why = f"the endpoint answers with {endpoint.words(given) or 'no content type'} instead of {exchange.kind}"
        raise Trouble(f"{why}; see whether base_url is an address of this protocol, and whether it supports stream:")


class _Tapped(httpx2.AsyncByteStream):
    """A body of at most `MAX_BYTES`, which the exchange reads instead of the SDK.

    A failure is kept for `Exchange.run`: raised here, it would pass through the SDK, which leaves its generators open.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange) -> None:
        self._inner = inner
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            await self._read()
        except Exception as problem:  # noqa: BLE001 - see above
            self._exchange.problem = problem
        yield b""

    async def _read(self) -> None:
        exchange, held = self._exchange, 0
        async for chunk in self._inner:
            held += len(chunk)
            if held > MAX_BYTES:
                raise Trouble(f"the endpoint's answer is larger than {MAX_BYTES} bytes; lower max_output_tokens")
            over = False
            if exchange.good and exchange.take is not None:
                over = exchange.take(chunk)
            else:
                exchange.body += chunk
            if over:
                break
        exchange.ended = True

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()
