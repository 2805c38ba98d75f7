r"""How other programs read a path or a URL: with escapes decoded, ``\`` as ``/``, and dot segments resolved.

A server by the rules of WHATWG (https://url.spec.whatwg.org) takes ``%2E%2e`` for ``..`` and, after ``http:``, ``\``
for ``/``; it drops tabs and line ends. Programs behind it often decode once more. A condition on text therefore looks
at all `readings` of it.
"""

import re
from functools import partial
from types import MappingProxyType
from typing import Final
from unicodedata import normalize
from urllib.parse import unquote

ROUNDS: Final = 8
"""How often escapes are decoded: ``%252e`` is a dot after two rounds. Text that still changes has `UNREADABLE`."""
UNREADABLE: Final = "/\0/"
"""Stands for a reading that is not known; only a condition that holds for any text holds for it."""

_OTHERWISE: Final = re.compile(r"[%\\\t\n\r]|\A[\x00-\x20]|[\x00-\x20]\Z|\A[A-Za-z][A-Za-z0-9+.-]*:|\A/").search
_TABLE: Final = MappingProxyType({ord("\t"): None, ord("\n"): None, ord("\r"): None, ord("\\"): "/"})
_ENDS: Final = "".join(map(chr, range(0x21)))
_OVERLONG: Final = MappingProxyType({"%c0%ae": ".", "%c0%af": "/", "%c1%9c": "/"})
_decode_overlong: Final = partial(
    re.compile("%c0%a[ef]|%c1%9c", re.IGNORECASE).sub, lambda found: _OVERLONG[found[0].lower()]
)
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):([^?#]*)(.*)", re.DOTALL).fullmatch
_PORTS: Final = MappingProxyType({"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21", "file": ""})
"""The special schemes, with their default ports."""
_STOPS: Final = re.compile("[\u3002\uff0e\uff61]")
_NUMBER: Final = re.compile(r"(0x[0-9a-f]*|[0-9]+)").fullmatch


def readings(text: str) -> tuple[str, ...]:
    """Return *text* and whatever else other programs may read it as, each once; in time linear in its length."""
    if not _OTHERWISE(text):
        return (text,)
    found = {text: None}
    for _ in range(ROUNDS):
        plain = text.strip(_ENDS).translate(_TABLE)
        found[plain] = None
        found[resolve_dots(plain)] = None
        decoded = unquote(_decode_overlong(plain))
        if decoded == text:
            break
        text = decoded
    else:
        found[UNREADABLE] = None
    return tuple(found)


def resolve_dots(text: str) -> str:
    """Return a URL, or an absolute path, without dot segments and doubled slashes; other text as it is.

    Scheme and host are in lower case; a special scheme (such as ``https``) loses user, password and its own port.
    """
    if text[:1] == "/":
        path, more = re.fullmatch(r"([^?#]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
        return _resolve(path) + more
    found = _URL(text)
    if not found:
        return text
    scheme, rest, more = found[1].lower(), found[2], found[3]
    if scheme == "file":
        authority, slash, path = rest[2:].partition("/") if rest[:2] == "//" else ("", "/", rest)
    elif scheme in _PORTS:
        authority, slash, path = rest.lstrip("/").partition("/")
        slash = "/"
    elif rest[:2] == "//":
        authority, slash, path = rest[2:].partition("/")
        return f"{scheme}://{authority}{_resolve(f'/{path}') if slash else ''}{more}"
    else:
        return f"{scheme}:{_resolve(rest) if rest[:1] == '/' else rest}{more}"
    return f"{scheme}://{_host(authority, _PORTS[scheme])}{_resolve(f'{slash}{path}')}{more}"


def _resolve(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part and part != ".":
            parts.append(part)
    ends = path.rpartition("/")[2] in ("", ".", "..") and parts
    return f"/{'/'.join(parts)}{'/' if ends else ''}"


def _host(authority: str, port: str) -> str:
    """Return host and port as a resolver reads them: compatible letters (IDNA), and numbers as an IPv4 address."""
    name, colon, number = authority.rpartition("@")[2].partition(":")
    if name[:1] == "[":
        return authority.rpartition("@")[2].lower()
    name = _STOPS.sub(".", name)
    name = normalize("NFKC", name).casefold().removesuffix(".")
    more = f":{number}" if colon and number not in ("", port) else ""
    return f"{_address(name) or name}{more}"


def _address(name: str) -> str:
    """Return the IPv4 address that *name* is in any of its spellings, such as ``0x7f.1``; empty if it is none."""
    parts = name.split(".")
    if len(parts) > 4 or not all(_NUMBER(part) and len(part) < 20 for part in parts):
        return ""
    try:
        numbers = [_integer(part) for part in parts]
    except ValueError:
        return ""
    *high, low = numbers
    if any(number > 255 for number in high) or low >= 256 ** (4 - len(high)):
        return ""
    value = low + sum(number << 8 * (3 - at) for at, number in enumerate(high))
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def _integer(digits: str) -> int:
    if digits[:2] == "0x":
        return int(digits[2:] or "0", 16)
    return int(digits, 8 if digits[:1] == "0" and len(digits) > 1 else 10)
