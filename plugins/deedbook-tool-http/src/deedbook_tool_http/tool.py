"""``tool: http``: one operation at a listed host, with secrets by name and limits on everything."""

import ssl
from collections.abc import Iterator

from deedbook.contract import AbilityDeclaration, Ctx, Failed, HandlerSpec, Host, Json, Object, Secret
from deedbook_tool_standard.outputs import FORMS, Mask, beginning
from deedbook_tool_standard.shapes import ANYTHING, SECRET, strict

from .exchange import REDIRECTS, SAFE, Answer, Limits, Request, exchange, unconfirmed_failure
from .hosts import Site, parse_site
from .operation import Address, Credentials, build_body, build_query, faults, fill_header, parse_address

SECONDS = 30.0
BYTES = 1024 * 1024
_TEXT: Object = {"type": "string", "maxLength": 8192}
_FORM: Object = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_HOSTS: Object = {"type": "array", "items": {"type": "string", "minLength": 1}}
_PREFIXED = strict({"secret": {"type": "string", "minLength": 1}, "prefix": _TEXT}, optional=frozenset({"prefix"}))
_ALL: Object = {
    "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]},
    "url": {
        "description": "https://host/path; placeholders stand in the path only",
        "type": "string",
        "maxLength": 8192,
    },
    "hosts": {
        "description": "The hosts that may be reached, exactly; host:port for another port",
        **_HOSTS,
        "minItems": 1,
    },
    "private": {"description": "Those of the hosts whose addresses need not be public", **_HOSTS},
    "insecure": {"description": "http: without TLS, to this machine only", "type": "boolean"},
    "query": _FORM,
    "headers": {"type": "object", "additionalProperties": {"anyOf": [_TEXT, _PREFIXED]}},
    "auth": {
        "oneOf": [
            strict({"bearer": SECRET}),
            strict({"basic": strict({"user": {"type": "string", "pattern": "^[^:]*$"}, "password": SECRET})}),
        ]
    },
    "body": {"oneOf": [strict({"json": {}}), strict({"form": _FORM}), strict({"text": {"type": "string"}})]},
    "ca": {"description": "A file with the certificates to trust, instead of the usual ones", "type": "string"},
    "output": {"enum": ["text", "json"]},
    "keep": {"description": "Headers of the answer that the result holds", **_HOSTS},
    "statuses": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 200, "maximum": 599}},
    "redirects": {"enum": ["refuse", "same-host"]},
    "limits": strict(
        {
            "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 3600},
            "bytes": {"type": "integer", "minimum": 1, "maximum": 16 * 1024 * 1024},
        },
        optional=frozenset({"seconds", "bytes"}),
    ),
}
_NEEDED = frozenset({"method", "url", "hosts"})
_SETTINGS = strict(_ALL, optional=frozenset(_ALL) - _NEEDED)
_RESULT = strict(
    {
        "status": {"type": "integer"},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "body": ANYTHING,
    },
    optional=frozenset({"status", "headers", "body"}),
)


def check(declared: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an ability of this tool."""
    settings = declared.settings
    if declared.effects is None:
        yield "", "say what the request does to the world: effects: read, write or irreversible"
    if declared.schema_out is None:
        yield (
            "",
            "schema_out is missing: write what the body is, {properties: {body: …}}, or schema_out: true for anything",
        )
    if declared.schema_in is None:
        yield "", "schema_in is missing: it declares the arguments that the placeholders stand for"
    else:
        yield from ((f"/with{pointer}", why) for pointer, why in faults(settings, declared.schema_in))
    yield from ((f"/with{pointer}", why) for pointer, why in _place_faults(settings))


def _place_faults(settings: Object) -> Iterator[tuple[str, str]]:
    try:
        where = parse_address(settings["url"])
    except ValueError:
        return  # said with the templates
    known: dict[str, set[Site]] = {"hosts": set(), "private": set()}
    for section, sites in known.items():
        for index, text in enumerate(settings.get(section, ())):
            try:
                sites.add(parse_site(text, where.scheme))
            except ValueError as problem:
                yield f"/{section}/{index}", str(problem)
    if where.place not in known["hosts"]:
        yield "/url", f"{where.place.authority(where.scheme)} is not among hosts:"
    for extra in sorted(each.name for each in known["private"] - known["hosts"]):
        yield "/private", f"{extra} is not among hosts:"
    if where.scheme == "http" and not settings.get("insecure"):
        yield "/url", "http: is not encrypted; write https:, or insecure: true for a server on this machine"
    elif where.scheme == "http" and not _is_here(where.place):
        yield "/url", "insecure: is for this machine only: localhost, 127.0.0.1 or [::1]"


def _is_here(place: Site) -> bool:
    return place.name == "localhost" or (place.address is not None and place.address.is_loopback)


class Http:
    """Sends one kind of request to one host; its result is ``{status, headers, body}``."""

    spec = HandlerSpec(settings=_SETTINGS, gives=_RESULT, effects="read", interruptible=True, check=check, files="none")

    def __init__(self, settings: Object, host: Host) -> None:
        self._settings = settings
        self._where: Address = parse_address(settings["url"])
        if next(_place_faults(settings), None):
            raise ValueError("the url leads to no host that is listed")
        self._private = self._where.place in {
            parse_site(text, self._where.scheme) for text in settings.get("private", ())
        }
        self._secrets: dict[str, Secret] = {name: host.secret(name) for name in sorted(_secrets(settings))}
        self._basic = self._credentials(settings.get("auth", {}).get("basic"))
        self._mask = Mask([*self._secrets.items(), *self._basic])
        limits = settings.get("limits", {})
        self._seconds, self._bytes = limits.get("seconds", SECONDS), limits.get("bytes", BYTES)
        self._statuses = frozenset(settings.get("statuses", range(200, 300)))
        self._output: str = settings.get("output", "json")
        self._trusted = _read(host, settings["ca"]) if "ca" in settings else None
        self._context: ssl.SSLContext | None = None

    async def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Send the request and return the answer.

        Raises `Failed` with ``HTTP_FAILED``, ``HTTP_REFUSED``, ``ARGUMENT_REFUSED``, ``OUTPUT_REFUSED``
        or ``OUTPUT_TOO_LARGE``.
        """
        seconds = min(ctx.remaining(), self._seconds)
        if seconds <= 0:
            raise Failed("TOOL_TIMEOUT", "the call was cancelled or its time is up; nothing was sent")
        request = self._request(args)
        if self._context is None:
            self._context = self._trust()
        answer = await exchange(request, Limits(seconds, self._bytes), self._context)
        return self._result(answer)

    def _trust(self) -> ssl.SSLContext:
        if self._trusted is not None:
            return ssl.create_default_context(cadata=self._trusted)
        import httpx  # noqa: PLC0415 - a heavy library, imported at the first call

        return httpx.create_ssl_context(trust_env=False)

    def _request(self, args: Object) -> Request:
        settings, where = self._settings, self._where
        asked = build_query(settings.get("query", {}), args)
        content = build_body(settings.get("body"), args)
        own = {"accept-encoding": "identity", "user-agent": "deedbook-tool-http", "accept": "*/*"}
        if content:
            own["content-type"] = content[0]
        here = _is_here(where.place)
        return Request(
            method=settings["method"],
            scheme=where.scheme,
            place=where.place,
            target=where.path(args) + (f"?{asked}" if asked else ""),
            headers={**own, **self._headers(args)},
            content=content[1] if content else None,
            private=self._private or here or where.place.address is not None,
            loopback=here,
            follow=settings.get("redirects") == "same-host" and settings["method"] in SAFE,
        )

    def _headers(self, args: Object) -> dict[str, str]:
        made: dict[str, str] = {}
        for name, value in self._settings.get("headers", {}).items():
            if isinstance(value, str):
                text = fill_header(name, value, args)
            else:
                text = value.get("prefix", "") + self._secrets[value["secret"]].reveal()
            if text is not None:
                made[name.lower()] = text
        auth = self._settings.get("auth", {})
        if "bearer" in auth:
            made["authorization"] = f"Bearer {self._secrets[auth['bearer']['secret']].reveal()}"
        for _, credentials in self._basic:
            made["authorization"] = f"Basic {credentials.reveal()}"
        return made

    def _credentials(self, said: Object | None) -> list[tuple[str, Secret]]:
        """Return user and password as one secret, under the password's name; nothing where there are none."""
        if said is None:
            return []
        name = said["password"]["secret"]
        return [(name, Credentials(said["user"], self._secrets[name]))]

    def _result(self, answer: Answer) -> Json:
        place, raw = self._where.place.url_host, self._mask(answer.body)
        if answer.status not in self._statuses:
            if answer.status in REDIRECTS:
                raise Failed("HTTP_REFUSED", f"{place} redirects (status {answer.status}), which is not followed")
            said = beginning(raw)
            why = f"{place} answered with status {answer.status}" + (f": {said}" if said else "")
            if answer.status >= 500:
                raise unconfirmed_failure(self._settings["method"], "HTTP_FAILED", why)
            raise Failed("HTTP_FAILED", why, retryable=answer.status == 429)
        kept = {name.lower() for name in self._settings.get("keep", ())}
        headers = {name: self._mask_value(value) for name, value in answer.headers.items() if name in kept}
        return {"status": answer.status, "headers": headers, "body": self._body(answer, raw)}

    def _body(self, answer: Answer, raw: bytes) -> Json:
        what = f"the answer of {self._where.place.url_host}"
        if not raw:
            return None if self._output == "json" else ""
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self._output == "json" and not (kind == "application/json" or kind.endswith("+json")):
            raise Failed("OUTPUT_REFUSED", f"{what} is {kind[:80] or 'of no type'}, not JSON")
        return FORMS[self._output](raw, what)

    def _mask_value(self, value: str) -> str:
        return self._mask(value.encode("utf-8", "backslashreplace")).decode("utf-8", "backslashreplace")


def _read(host: Host, path: str) -> str:
    with host.open(path) as file:
        return file.read().decode("ascii", "replace")


def _secrets(settings: Object) -> Iterator[str]:
    """Yield the names of the secrets that the request needs."""
    for value in settings.get("headers", {}).values():
        if not isinstance(value, str):
            yield value["secret"]
    for scheme, value in settings.get("auth", {}).items():
        yield (value if scheme == "bearer" else value["password"])["secret"]
