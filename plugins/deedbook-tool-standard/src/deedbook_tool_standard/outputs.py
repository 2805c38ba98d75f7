"""What a program or a server said, as a value: text, JSON or lines, with secrets marked and nothing cut short."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from urllib.parse import quote, quote_plus

from deedbook import IntakeError, parse
from deedbook.contract import Failed, Json, Secret

_SHOWN = 400
_SHORT = 6
_PERCENT = re.compile("%[0-9A-F]{2}")


class Mask:
    """Puts ``[secret:NAME]`` in the place of the values of the secrets that were handed out."""

    def __init__(self, secrets: Sequence[tuple[str, Secret]]) -> None:
        self._secrets = tuple(secrets)

    def __call__(self, raw: bytes) -> bytes:
        """Return *raw* without the values, the longest spelling first: one may hold another."""
        pairs = [
            (spelling, f"[secret:{name}]".encode())
            for name, secret in self._secrets
            for spelling in _spellings(secret.reveal())
        ]
        for value, mark in sorted(pairs, key=lambda pair: -len(pair[0])):
            raw = raw.replace(value, mark)
        return raw


def _spellings(value: str) -> set[bytes]:
    """Return how a value may come back: as it is, in JSON, in a URL, in hexadecimal, in base64."""
    raw = value.encode()
    told = {
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        *_quote_variants(value),
        *_in_base64(raw),
    }
    return {raw, *(text.encode() for text in told)} - {b""}


def _quote_variants(value: str) -> Iterator[str]:
    for quoted in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield quoted
        yield _PERCENT.sub(lambda found: found[0].lower(), quoted)


def _in_base64(raw: bytes) -> Iterator[str]:
    """Yield its base64 and hexadecimal; of a short value only what cannot be taken for other text."""
    whole = base64.b64encode(raw).decode()
    found = {whole}
    if len(raw) >= _SHORT:
        found |= {raw.hex(), raw.hex().upper()}
        # inside a longer text base64 starts at one of three places; the digits at both ends depend on the neighbours
        for shift in range(3):
            text = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
            found.add(text[(0, 2, 3)[shift] : len(text) - ((shift + len(raw)) % 3 > 0)])
    for each in found:
        yield each
        yield each.replace("+", "-").replace("/", "_")


def text(raw: bytes, what: str) -> str:
    """Return UTF-8 bytes as text, exactly; raises `Failed` with ``OUTPUT_REFUSED``."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise Failed("OUTPUT_REFUSED", f"{what}: byte {problem.start} is not UTF-8 text") from None


def lines(raw: bytes, what: str) -> list[str]:
    """Return the lines of UTF-8 bytes; a last newline begins no line."""
    found = text(raw, what).split("\n")
    return found[:-1] if not found[-1] else found


def document(raw: bytes, what: str) -> Json:
    """Return exactly one JSON document, as intake reads it; raises `Failed` with ``INTAKE_REFUSED``."""
    try:
        found: Json = parse(raw)
    except IntakeError as problem:
        raise Failed(problem.error.code, f"{what} is not the JSON that was expected: {problem}") from None
    return found


def beginning(raw: bytes) -> str:
    """Return the beginning of a diagnostic text; bytes that are no UTF-8 are shown as escapes."""
    said = raw[: _SHOWN * 4].decode("utf-8", "backslashreplace").strip()
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}…"


def diagnostic(raw: bytes) -> str:
    """Return all of a diagnostic text; bytes that are no UTF-8 are shown as escapes."""
    return raw.decode("utf-8", "backslashreplace")


FORMS: Mapping[str, Callable[[bytes, str], Json]] = MappingProxyType({"text": text, "json": document, "lines": lines})
"""The names of the setting ``output``, and what makes a value of bytes."""
