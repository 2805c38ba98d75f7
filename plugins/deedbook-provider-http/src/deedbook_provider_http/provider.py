"""A provider over HTTP: one request, one answer, and every failure in words that say what to do."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from deedbook import Ctx, Failed, Host, Json, Object, Secret

from .functions import names_of
from .images import load_images
from .names import Names
from .reply import obj
from .settings import Settings
from .stream import KINDS, EventStream, Form
from .trouble import Endpoint, Trouble

if TYPE_CHECKING:
    import httpx2


class Merged(Protocol):
    """The events of a stream, put together to the document that would have come without a stream."""

    def add(self, event: Object, /) -> str:
        """Take one event; return the text that it adds, for the person who watches. Raises `Trouble`."""

    def document(self) -> Object:
        """Return the whole; raises `Trouble` if the stream ended before its answer did."""


class CallContext(Protocol):
    """What a call needs of its context."""

    def remaining(self) -> float:
        """Return how many seconds are left."""

    def progress(self, delta: Json, /) -> None:
        """Show a piece of the answer."""


class HttpProvider(ABC):
    """A model provider that asks an endpoint: ``completion_request_v2`` or ``_v3`` → a response of that version.

    A call sends one request and never a second one: the caller decides whether to ask again, by ``retryable`` and
    ``retry_after``.
    Everything that goes wrong is `Failed` with ``PROVIDER_ERROR``, or with ``INTAKE_REFUSED`` for an answer that is not
    acceptable JSON, or with ``MALFORMED_AGENT_MESSAGE`` for arguments of a tool that are no JSON object; a message
    names the secret, never the key.
    """

    agent: ClassVar[str]
    """The distribution, sent as ``user-agent``."""
    form: ClassVar[Form] = "sse"
    """How a stream is cut into events."""
    hint: ClassVar[str] = "structured and extra"
    """The settings that a refused request may be due to."""
    last: ClassVar[bytes] = b""
    """The data of an event that ends a stream and is no JSON, where the protocol has one."""

    def __init__(self, settings: Settings, host: Host) -> None:
        self._settings = settings
        self._schema_of = host.schema
        self._host = host
        self._key = host.secret(settings.key) if settings.key else None
        self._headers: dict[str, str | Secret] = {
            name: host.secret(value["secret"]) if isinstance(value, Mapping) else value
            for name, value in settings.headers.items()
        }
        named = [value["secret"] for value in settings.headers.values() if isinstance(value, Mapping)]
        named += [settings.key] if settings.key else []
        self._marks = {f"[secret:{name}]": host.secret(name) for name in named}

    def __call__(self, request: Object, ctx: Ctx) -> Awaitable[dict[str, Any]]:
        """Ask the model. The first call imports the libraries; the limit of the call begins after that."""
        try:
            self.load()
        except Trouble as trouble:
            raise _failure(trouble) from None
        return self._ask(request, ctx)

    async def _ask(self, request: Object, ctx: Ctx) -> dict[str, Any]:
        try:
            return await self.attempt(request, ctx)
        except Trouble as trouble:
            problem = trouble
        raise _failure(problem)

    def load(self) -> None:
        """Import what a request needs, such as the vendor's SDK, which takes long; raises `Trouble`."""
        from .exchange import read_trust  # noqa: PLC0415 - takes long to import

        read_trust()

    async def attempt(self, request: Object, ctx: CallContext) -> dict[str, Any]:
        """Send one request and return the response; raises `Trouble`, whose message holds no key."""
        try:
            names = names_of(request)
            asked = self.question(load_images(request, self._host), names)
            return dict(_mask(await self._ask_endpoint(request, asked, names, ctx), self._marks))
        except Trouble as trouble:
            problem = trouble.without(self._hidden())
        raise problem

    async def _ask_endpoint(self, request: Object, asked: Object, names: Names, ctx: CallContext) -> dict[str, Any]:
        headers = self._sent(self._kind)
        if ctx.remaining() <= 0:
            raise Trouble("no time is left to ask the model; raise timeout_ms", again=True)
        try:
            return self.answer(await self._document(request, asked, headers, ctx), request, names)
        except Trouble as trouble:
            problem = trouble.at(self._settings.base_url)
        raise problem

    # --- what a vendor's protocol says --------------------------------------------------------------------------------

    @abstractmethod
    def authorization(self, key: str) -> dict[str, str]:
        """Return the headers that carry *key*."""

    @abstractmethod
    def question(self, request: Object, names: Names) -> dict[str, Any]:
        """Return the body of the request."""

    @abstractmethod
    async def send(self, question: Object, client: "httpx2.AsyncClient", limit: "httpx2.Timeout") -> None:
        """Send the body through *client* and read the answer to its end; what it holds is read elsewhere."""

    @abstractmethod
    def merged(self) -> Merged:
        """Return what puts a stream together."""

    @abstractmethod
    def answer(self, document: Object, request: Object, names: Names) -> dict[str, Any]:
        """Return the response that a document, as parsed from JSON, is to *request*."""

    def version(self) -> dict[str, str]:
        """Return the headers that the protocol wants beside the usual ones."""
        return {}

    def refused(self, endpoint: Endpoint, status: int, headers: Mapping[str, str], body: object) -> Trouble:
        """Return what an answer with an error's *status* means."""
        return endpoint.refused(status, headers, body)

    # --- the one request ----------------------------------------------------------------------------------------------

    async def _document(self, request: Object, asked: Object, headers: Mapping[str, str], ctx: CallContext) -> Object:
        from .exchange import Exchange, read_json  # noqa: PLC0415 - the HTTP library takes long to import

        endpoint = self._endpoint(request)
        stream = _Watched(self, endpoint, ctx) if self._settings.stream else None
        exchange = Exchange(headers, self._kind, stream.take if stream else None)

        async def send(client: "httpx2.AsyncClient", limit: "httpx2.Timeout") -> None:
            await self.send(asked, client, limit)

        def refused(status: int, given: Mapping[str, str], body: object) -> Trouble:
            return self.refused(endpoint, status, given, body)

        await exchange.run(send, endpoint, ctx.remaining(), refused)
        if stream is not None:
            return stream.document()
        found = read_json(bytes(exchange.body), "the endpoint's answer is refused")
        return obj(found, "the answer is no JSON object")

    @property
    def _kind(self) -> str:
        """The content type of an answer."""
        return KINDS[self.form] if self._settings.stream else "application/json"

    def _endpoint(self, request: Object) -> Endpoint:
        return Endpoint(self._settings.base_url, request["model"], self._settings.key, self._hidden(), self.hint)

    def _hidden(self) -> tuple[str, ...]:
        secrets = (self._key, *self._headers.values())
        return tuple(secret.reveal() for secret in secrets if not isinstance(secret, str | None))

    def _sent(self, kind: str) -> dict[str, str]:
        """Return the headers, all of them."""
        sent = {"accept": kind, "accept-encoding": "identity", "content-type": "application/json"}
        sent |= {"user-agent": self.agent, **self.version()}
        if self._key is not None:
            sent |= self.authorization(_header(self._settings.key, self._key))
        more = self._headers.items()
        return sent | {name: value if isinstance(value, str) else _header(name, value) for name, value in more}


class _Watched:
    """A stream on its way: each event is parsed, put to the others, and its text shown."""

    def __init__(self, provider: HttpProvider, endpoint: Endpoint, ctx: CallContext) -> None:
        self._merged = provider.merged()
        self._events = EventStream(provider.form)
        self._last = provider.last
        self._over = False
        self._endpoint = endpoint
        self._ctx = ctx

    def take(self, chunk: bytes) -> bool:
        """Take bytes as they come; return whether the stream says that it is over. Raises `Trouble`."""
        for data in self._events.feed(chunk):
            if self._is_last(data):
                self._over = True
                break
            self._add(data, "the stream holds an event that is refused")
        return self._over

    def document(self) -> Object:
        """Return the whole."""
        for data in () if self._over else self._events.end():
            if not self._is_last(data):
                self._add(data, "the stream ended in the middle of an event")
        return self._merged.document()

    def _is_last(self, data: bytes) -> bool:
        return bool(self._last) and data.startswith(self._last)

    def _add(self, data: bytes, why: str) -> None:
        from .exchange import read_json  # noqa: PLC0415 - as above

        event = obj(read_json(data, why), "the stream holds no JSON object")
        if event.get("error") or event.get("type") == "error":
            raise self._endpoint.broke_off(event)
        text = self._merged.add(event)
        if text:
            self._ctx.progress({"text": text})


def vendor_sdk(module: str, extra: str) -> Any:
    """Import a vendor's SDK; *extra* is what to install if it is missing."""
    try:
        return import_module(module)
    except ImportError as problem:
        why = f"the SDK {module} cannot be imported ({problem}); run: pip install '{extra}'"
        raise Trouble(why) from None


def _mask(value: Any, marks: Mapping[str, Secret]) -> Any:
    """Return JSON in which texts that repeat a secret of *marks* have its mark instead."""
    if isinstance(value, str):
        for mark, secret in marks.items():
            value = value.replace(secret.reveal(), mark)
    elif isinstance(value, list):
        return [_mask(item, marks) for item in value]
    elif isinstance(value, dict):
        return {_mask(name, marks): _mask(item, marks) for name, item in value.items()}
    return value


def _failure(problem: Trouble) -> Failed:
    return Failed(problem.code, problem.describe(), retryable=problem.retryable, retry_after=problem.wait)


def _header(name: str | None, secret: Secret) -> str:
    """Return a secret's value, if a header may hold it: what the HTTP library says otherwise would quote it."""
    value = secret.reveal()
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise Trouble(
            f"the secret {name!r} holds a line end, a space at an end or another character that no header may; "
            "correct its environment variable"
        )
    return value
