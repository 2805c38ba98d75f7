"""One operation as YAML spells it out: method, address, query, headers and body, each with placeholders.

A value fills the place that is made for it and nothing else: it never becomes another host, another path segment,
another query key or another header.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from deedbook.contract import Failed, Json, Object, Secret
from deedbook.contract.pointers import escape
from deedbook.contract.urls import readings
from deedbook_tool_standard.templates import Placeholder, Template, misfits, parse, text_of

from .hosts import Site, parse_site

_URL = re.compile(r"(https?)://([^/?#]*)(/.*)?", re.DOTALL)
_LITERAL = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
OWN_HEADERS = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect",
        "accept-encoding", "proxy-authorization", "proxy-connection",
    }
)  # fmt: skip
"""Headers that say where a request goes and how long it is, or are the connection's own."""
_TYPES = (
    ("json", "application/json"),
    ("form", "application/x-www-form-urlencoded"),
    ("text", "text/plain;charset=UTF-8"),
)
_DOTS = (".", "..")


@dataclass(frozen=True)
class Address:
    """The address of a request: *scheme* and *place* are literal, *segments* of the path are templates."""

    scheme: str
    place: Site
    segments: tuple[Template, ...]

    def path(self, args: Object) -> str:
        """Return the path for these arguments, percent-encoded; raises `Failed` with ``ARGUMENT_REFUSED``."""
        made: list[str] = []
        for template in self.segments:
            whole = template.whole
            if whole is not None and whole.spread:
                items = (template.values(args) or {whole: []})[whole]
                made += [_segment(whole, text_of(whole, item)) for item in (items if isinstance(items, list) else [])]
                continue
            found = template.values(args)
            if found is not None:
                parts = [
                    part if isinstance(part, str) else _encode_segment(part, found[part]) for part in template.parts
                ]
                made.append(_check_segment(template, "".join(parts)))
        return "/" + "/".join(made)


def _segment(placeholder: Placeholder, text: str) -> str:
    """Return one value as one segment; what would lead up or away is refused, also behind a server's decoding."""
    if not text or _leads_away(text):
        raise Failed("ARGUMENT_REFUSED", f"{placeholder.written}: {text[:40]!r} is no segment of a path")
    return quote(text, safe="")


def _leads_away(text: str) -> bool:
    """Return whether *text* has a dot segment in any reading: servers and what is behind them may decode again."""
    return any(step in _DOTS for each in readings(text) for step in re.split(r"[/\\]", each))


def _encode_segment(placeholder: Placeholder, value: Json) -> str:
    return _segment(placeholder, text_of(placeholder, value))


def _check_segment(template: Template, segment: str) -> str:
    if template.placeholders and _leads_away(segment):
        raise Failed("ARGUMENT_REFUSED", f"{template.placeholders[0].written}: {segment!r} is no segment of a path")
    return segment


def parse_address(url: str) -> Address:
    """Return the address of ``url``; raises `ValueError` with a message for the author of the YAML."""
    found = _URL.fullmatch(url)
    if not found:
        raise ValueError("write url: https://host/path, the host without placeholders")
    scheme, authority, path = found[1], found[2], found[3] or "/"
    if "{" in authority or "@" in authority:
        raise ValueError("the host is always written out: no placeholder, no user and no password before the path")
    template = parse(path)
    for part in template.parts:
        if isinstance(part, str) and not _LITERAL.fullmatch(part):
            raise ValueError(
                "the path holds a letter that a URL cannot hold; put ? under query:, and encode others as %XX"
            )
    segments: list[list[str | Placeholder]] = [[]]
    for part in template.parts:
        if isinstance(part, str):
            first, *rest = part.split("/")
            segments[-1] += [first] if first else []
            segments += [[text] if text else [] for text in rest]
        else:
            segments[-1].append(part)
    made = [Template(tuple(parts)) for parts in segments[1:]]
    if any(isinstance(part, str) and _leads_away(part) for template in made for part in template.parts[:1]):
        raise ValueError("the path holds . or .. as a segment; write out where it leads")
    return Address(scheme, parse_site(authority, scheme), tuple(made))


def build_query(templates: Mapping[str, Any], args: Object) -> str:
    """Return the query for these arguments; an array makes its key stand several times."""
    pairs: list[str] = []
    for name, value in templates.items():
        key = quote(name, safe="")
        pairs += [f"{key}={quote(text, safe='')}" for text in _texts(value, args)]
    return "&".join(pairs)


def _texts(value: Any, args: Object) -> list[str]:
    if not isinstance(value, str):
        return [json.dumps(value)]
    template = parse(value)
    whole = template.whole
    if whole is not None and whole.spread:
        items = (template.values(args) or {whole: []})[whole]
        return [text_of(whole, item) for item in (items if isinstance(items, list) else [])]
    text = template.fill(args)
    return [] if text is None else [text]


def fill_header(name: str, value: str, args: Object) -> str | None:
    """Return a header's value for these arguments; a line break or a letter outside ASCII is refused."""
    text = parse(value).fill(args)
    if text is not None and not _VALUE.fullmatch(text):
        raise Failed("ARGUMENT_REFUSED", f"the header {name} cannot hold a line break or a letter outside ASCII")
    return text


class Credentials:
    """A user and a password as ``Authorization`` has them (RFC 7617): a `Secret` itself, since it holds one."""

    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password

    def reveal(self) -> str:
        """Return the two in base64."""
        return base64.b64encode(f"{self._user}:{self._password.reveal()}".encode()).decode()


def build_body(templates: Mapping[str, Any] | None, args: Object) -> tuple[str, bytes] | None:
    """Return the content type and the bytes of the body."""
    if templates is None:
        return None
    ((form, value),) = templates.items()
    kind = dict(_TYPES)[form]
    if form == "form":
        return kind, build_query(value, args).encode()
    if form == "text":
        return kind, (parse(value).fill(args) or "").encode()
    return kind, json.dumps(fill_placeholders(value, args), ensure_ascii=False, allow_nan=False).encode()


class _PartOmitted(Exception):  # noqa: N818 - no error: it only leaves a part out
    """An optional placeholder has no value, so the part that contains it is omitted."""


def fill_placeholders(value: Any, args: Object) -> Json:
    """Return JSON with its placeholders filled; one that is a whole string becomes the argument, of whatever type."""
    if isinstance(value, dict):
        return dict(_members(value, args))
    if isinstance(value, list):
        return [inner for _, inner in _members(dict(enumerate(value)), args)]
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]
    template = parse(value)
    found = template.values(args)
    if found is None:
        raise _PartOmitted
    if template.whole is not None:
        return found[template.whole]
    return template.fill(args)


def _members(members: Mapping[Any, Any], args: Object) -> Iterator[tuple[Any, Json]]:
    for key, inner in members.items():
        try:
            yield key, fill_placeholders(inner, args)
        except _PartOmitted:
            continue


# --- what is wrong with it ------------------------------------------------------------------------------------------


def faults(settings: Object, schema: Object) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the templates of an operation, each with a JSON pointer into the settings."""
    try:
        where = parse_address(settings["url"])
    except ValueError as problem:
        yield "/url", str(problem)
    else:
        for template in where.segments:
            yield from (("/url", why) for why in misfits(template, schema))
    for name, value in settings.get("query", {}).items():
        yield from _text_faults(f"/query/{escape(name)}", value, schema)
    yield from _header_faults(settings.get("headers", {}), schema)
    if "body" in settings and settings["method"] in ("GET", "HEAD"):
        yield "/body", f"{settings['method']} has no body"
    for form, value in settings.get("body", {}).items():
        yield from _part_faults(f"/body/{form}", value, schema, free=form == "json")


def _header_faults(headers: Mapping[str, Any], schema: Object) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        at = f"/headers/{escape(name)}"
        if not _HEADER.fullmatch(name):
            yield at, f"{name[:80]!r} is no name of a header"
        elif name.lower() in OWN_HEADERS:
            yield at, f"{name} is the connection's own; it cannot be set"
        if isinstance(value, str) and not _VALUE.fullmatch(value):
            yield at, f"the header {name} cannot hold a line break or a letter outside ASCII"
        yield from _text_faults(at, value, schema)


def _part_faults(at: str, value: Any, schema: Object, *, free: bool) -> Iterator[tuple[str, str]]:
    """Yield the faults inside a body; with *free*, in JSON, a whole placeholder may be of any type."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _part_faults(f"{at}/{escape(key)}", inner, schema, free=free)
    else:
        yield from _text_faults(at, value, schema, free=free)


def _text_faults(at: str, value: Any, schema: Object, *, free: bool = False) -> Iterator[tuple[str, str]]:
    if not isinstance(value, str):
        return
    try:
        template = parse(value)
    except ValueError as problem:
        yield at, str(problem)
        return
    yield from ((at, why) for why in misfits(template, schema, single=not (free and template.whole)))
