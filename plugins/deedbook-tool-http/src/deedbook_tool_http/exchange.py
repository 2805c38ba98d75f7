"""One request and its answer: connected to the address that was checked, read within its limits."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from deedbook.contract import Failed

from .hosts import Site, parse_site, resolve

REDIRECTS = frozenset({301, 302, 303, 307, 308})
SAFE = frozenset({"GET", "HEAD"})
_MOST_REDIRECTS = 5


@dataclass(frozen=True)
class Limits:
    """What an answer may take: *seconds* in all, *size* in bytes."""

    seconds: float
    size: int


@dataclass(frozen=True)
class Request:
    """A request, ready to be sent: *target* is path and query; *private*, *loopback*: which addresses are meant."""

    method: str
    scheme: str
    place: Site
    target: str
    headers: Mapping[str, str]
    content: bytes | None
    private: bool
    loopback: bool
    follow: bool


@dataclass(frozen=True)
class Answer:
    """The answer of the server; *headers* by lower-case name."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def exchange(request: Request, limits: Limits, context: ssl.SSLContext) -> Answer:
    """Send *request* and read the answer; raises `Failed`."""
    progress = _Progress()
    try:
        async with asyncio.timeout(limits.seconds):
            return await _follow_redirects(request, limits, context, progress)
    except TimeoutError:
        why = f"{request.place.url_host} did not answer within {limits.seconds:g} s"
        if progress.sending:
            raise unconfirmed_failure(request.method, "TOOL_TIMEOUT", why) from None
        raise Failed("TOOL_TIMEOUT", f"{why}; nothing was sent", retryable=True) from None
    finally:
        await progress.close()


class _Progress:
    """The progress of a request. *sending* is false only as long as nothing can have been sent."""

    def __init__(self) -> None:
        self.sending = False
        self._connection: Any = None

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Take in one event of httpcore (its extension ``trace``): a connection is being made, or there is one."""
        self.sending = not (event.startswith("connection.") and event.endswith((".started", ".failed")))
        if event == "connection.connect_tcp.complete":
            self._connection = info["return_value"]

    async def close(self) -> None:
        """Close the connection, which httpcore leaves open if it is cancelled during the handshake of TLS."""
        if self._connection is not None:
            await self._connection.aclose()


def unconfirmed_failure(method: str, code: str, why: str) -> Failed:
    """Return the failure of a request that was sent and not confirmed: *why*, and whether it may be sent again.

    Only a method that is safe (RFC 9110, section 9.2.1) may. Any other may have been carried out: its outcome is lost.
    """
    if method in SAFE:
        return Failed(code, why, retryable=True)
    return Failed(code, f"{why}; the request may have been carried out", lost=True)


async def _follow_redirects(request: Request, limits: Limits, context: ssl.SSLContext, progress: _Progress) -> Answer:
    """Follow redirects where that is allowed, to the same place only; *progress* follows what is sent."""
    addresses = await resolve(request.place, private=request.private, loopback=request.loopback)
    target = request.target
    for _ in range(_MOST_REDIRECTS + 1):
        answer = await _send(request, target, addresses, limits, context, progress)
        if answer.status not in REDIRECTS or not request.follow:
            return answer
        target = _same_place(request, target, answer.headers.get("location", ""))
    raise Failed("HTTP_REFUSED", f"{request.place.url_host} redirects more than {_MOST_REDIRECTS} times")


def _same_place(request: Request, target: str, location: str) -> str:
    r"""Return path and query of a redirect, which has to stay where it was.

    A location with ``\`` is refused: most clients read it as ``/``, so that it may be meant to lead elsewhere.
    """
    here = f"{request.scheme}://{request.place.authority(request.scheme)}"
    try:
        parts = urlsplit(urljoin(f"{here}{target}", location))
        there = parse_site(parts.netloc, parts.scheme) if parts.scheme in ("http", "https") else None
    except ValueError:
        there = None
    if "\\" in location or there is None or parts.scheme != request.scheme or there != request.place:
        raise Failed("HTTP_REFUSED", f"{request.place.url_host} redirects to another place, which is not followed")
    return f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"


async def _send(
    request: Request,
    target: str,
    addresses: Sequence[str],
    limits: Limits,
    context: ssl.SSLContext,
    progress: _Progress,
) -> Answer:
    import httpx  # noqa: PLC0415 - a heavy library, imported at the first call

    async with httpx.AsyncClient(trust_env=False, verify=context, follow_redirects=False, timeout=None) as client:  # noqa: S113 - the limit is around all of it
        for number, address in enumerate(addresses, 1):
            try:
                async with _open_response(client, request, target, address, progress) as response:
                    return await _read(response, request, limits)
            except httpx.ConnectError as problem:
                if number == len(addresses):
                    raise _failure(request, problem, reached=False) from None
            except (httpx.HTTPError, httpx.InvalidURL) as problem:
                raise _failure(request, problem, reached=True) from None
    raise AssertionError("there is always an address")


@asynccontextmanager
async def _open_response(
    client: Any, request: Request, target: str, address: str, progress: _Progress
) -> AsyncIterator[Any]:
    import httpx  # noqa: PLC0415 - as above

    there = Site(address, request.place.port).authority(request.scheme)
    url = httpx.URL(f"{request.scheme}://{there}", raw_path=target.encode("ascii", "backslashreplace"))
    made = client.build_request(
        request.method,
        url,
        headers={**request.headers, "host": request.place.authority(request.scheme)},
        content=request.content,
        extensions={"sni_hostname": request.place.name.rstrip("."), "trace": progress.trace},
    )
    progress.sending = True
    response = await client.send(made, stream=True)
    try:
        yield response
    finally:
        await response.aclose()


async def _read(response: Any, request: Request, limits: Limits) -> Answer:
    coding = response.headers.get("content-encoding", "identity").lower()
    if coding != "identity" and request.method != "HEAD":
        raise Failed("OUTPUT_REFUSED", f"{request.place.url_host} answers compressed, though it was asked not to")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > limits.size:
            raise Failed("OUTPUT_TOO_LARGE", f"{request.place.url_host} answers with more than {limits.size} bytes")
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status_code, headers, bytes(body))


def _failure(request: Request, problem: Exception, *, reached: bool) -> Failed:
    """Return the failure, without quoting anything that was sent."""
    place, name = request.place.url_host, type(problem).__name__
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            why = getattr(cause, "verify_message", "") or cause.reason or "the handshake failed"
            return Failed("HTTP_FAILED", f"{place}: no trusted connection: {why}")
        cause = cause.__cause__ or cause.__context__
    if not reached:
        return Failed("HTTP_FAILED", f"{place} cannot be reached ({name})", retryable=True)
    return unconfirmed_failure(request.method, "HTTP_FAILED", f"{place}: the connection broke ({name})")
