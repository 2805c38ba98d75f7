"""Recognise the form of a ledger, and describe a file that is no ledger.

A form is recognised by the first line. A ledger with a damaged beginning is recognised by a later line, so that it is
reported as damaged and not as another file.
"""

import re
from typing import BinaryIO, Final

from deedbook.format.canonical import MAX_BYTES
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import FORMAT
from deedbook.format.terminal import excerpt

from . import envelope_1_0, event_ledger, seed_000
from .envelope_1_0 import Row, load

_KNOWN: Final = (
    f"a line of format {FORMAT}, of envelope {envelope_1_0.VERSION}, of seed 000's events or of seed 002's EventLedger"
)
"""The accepted first lines of a ledger."""

_LONGEST: Final = MAX_BYTES + 65536
_BLOCK: Final = 1 << 20
_OVERLAP: Final = 512
"""More bytes than any of the patterns below can match."""

_PRESENT: Final = b'{"schema_version":"1.1"'
_TORN: Final = ((b'{"event_type":', envelope_1_0.VERSION), (b'{"ts": ', event_ledger.FORM))
_TORN_000: Final = re.compile(rb'\s*\{\s*"id"\s*:')
_LATER: Final = re.compile(
    rb"(?<=\n)(?:"
    rb'(?P<present>\{"schema_version":"1\.1","session_id":")'
    rb'|(?P<envelope>\{"event_type":"[^"\\\n]{1,64}","payload":\{)'
    rb'|(?P<seed_000>\{"id": ?"[^"\\\n]{1,128}", ?"session_id": ?")'
    rb'|(?P<unhashed>\{"ts": ?[0-9.eE+-]{1,32}, ?"event_type": ?")'
    rb")"
)
_LATER_FORMS: Final = {
    "present": FORMAT,
    "envelope": envelope_1_0.VERSION,
    "seed_000": seed_000.FORM,
    "unhashed": event_ledger.FORM,
}
_BINARY: Final = (
    (b"\x1f\x8b", "it is compressed with gzip; decompress it first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd; decompress it first"),
    (b"BZh", "it is compressed with bzip2; decompress it first"),
    (b"\xfd7zXZ", "it is compressed with xz; decompress it first"),
    (b"PK\x03\x04", "it is a zip archive; unpack it first"),
    (b"\x89PNG", "it is a PNG image"),
    (b"%PDF", "it is a PDF document"),
    (b"SQLite format 3", "it is an SQLite database"),
)


def known_form(first: bytes) -> str | None:
    """Return the form of a ledger by its *first* line, or the available part of it; ``None`` if it has none."""
    if first.startswith(_PRESENT):
        return FORMAT
    try:
        return _form_of_row(load(first))
    except ValueError:
        pass
    for beginning, form in _TORN:
        if first.startswith(beginning):
            return form
    return seed_000.FORM if _TORN_000.match(first) else None


def form_of(first: bytes) -> str:
    """Return the form of a known ledger by its *first* line, which may be damaged."""
    return known_form(first) or FORMAT


def recognise(file: BinaryIO) -> str | None:
    """Return the form of the ledger in *file*, read from its beginning; ``None`` if no line has a known form."""
    file.seek(0)
    if form := known_form(file.readline(_LONGEST)):
        return form
    file.seek(0)
    before = b""
    while block := file.read(_BLOCK):
        if found := _LATER.search(before + block):
            return _LATER_FORMS[str(found.lastgroup)]
        before = (before + block)[-_OVERLAP:]
    return None


def require_form(file: BinaryIO, place: str) -> str:
    """Return the form of the ledger in *file*; raises `LedgerError` (``NOT_A_LEDGER``) for any other file."""
    form = recognise(file)
    if form is None:
        raise not_a_ledger(place, describe_other(file))
    return form


def not_a_ledger(place: str, why: str) -> LedgerError:
    """Return the error that *place* is no ledger; *why* describes the file."""
    said = f"not a Deedbook ledger: {why}; expected {_KNOWN}. Nothing was checked"
    return LedgerError(fault("NOT_A_LEDGER", said, place=place))


def describe_other(file: BinaryIO) -> str:
    """Return why the beginning of *file* is no line of any form."""
    file.seek(0)
    first = file.readline(_LONGEST)
    if not first:
        return "it is empty"
    for magic, said in _BINARY:
        if first.startswith(magic):
            return said
    if b"\0" in first:
        return "it is binary, not text"
    try:
        row = load(first)
    except ValueError:
        return f"its first line is not a JSON object: {excerpt(first.rstrip())!r}"
    keys = ", ".join(sorted(row)[:8]) or "none"
    return f"its first line is a JSON object with other fields ({excerpt(keys)})"


def _form_of_row(row: Row) -> str | None:
    keys = row.keys()
    if event_ledger.is_line(row):
        return event_ledger.FORM
    if {"envelope_hash", "prev_envelope_hash"} <= keys:
        return FORMAT
    if {"id", "session_id", "type", "payload"} <= keys:
        return seed_000.FORM
    if {"event_type", "payload_hash"} <= keys and row.get("schema_version") != FORMAT:
        return envelope_1_0.VERSION
    return None
