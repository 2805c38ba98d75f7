"""The lines of a ledger of format 1.1, each hash checked: a recording that was changed is not served."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, BinaryIO, Final, NamedTuple

from deedbook import parse_payload

LONGEST: Final = 2 * 1024 * 1024
"""No line of the format is longer."""
_MARK: Final = b',"envelope_hash":"'
_OPENING: Final = b'{"schema_version":"1.1","session_id":"'


class Line(NamedTuple):
    """One event: its number, type, span, parent, and payload; ``None`` where the payload was taken out of the line."""

    seq: int
    type: str
    span: str
    parent: str | None
    payload: dict[str, Any] | None


def lines(file: BinaryIO) -> Iterator[Line]:
    """Yield the events of the ledger in *file*; bytes after the last newline are not read.

    Raises `ValueError` for a line that is not what was written, `IntakeError` for JSON that no ledger holds.
    """
    before, number = b"", 0
    while (raw := file.readline(LONGEST)).endswith(b"\n"):
        if not number:
            before = _first(raw)
        header, _, rest = raw[:-1].partition(_MARK)
        own, payload = sha256(header).hexdigest().encode(), rest[76:-1]
        digest = sha256(payload).hexdigest().encode()
        out = payload == b'{"$excised":"%b"}' % header[-153:-89]
        whole = b'"payload_hash":"%b","prev_envelope_hash":"%b"' % (header[-153:-89] if out else digest, before)
        if not header.endswith(whole) or not rest.startswith(b'%b","payload":{' % own) or not rest.endswith(b"}"):
            raise ValueError(f"line {number + 1} is not what was written")
        said = parse_payload(header + b"}")
        made = None if out else parse_payload(payload)
        yield Line(said["seq"], said["event_type"], said["span_id"], said["parent_span_id"], made)
        before, number = own, number + 1
    if len(raw) == LONGEST:
        raise ValueError(f"line {number + 1} is longer than any line of a ledger")


def _first(raw: bytes) -> bytes:
    """Return what the first line names as the hash before it."""
    if not raw.startswith(_OPENING):
        raise ValueError("it does not begin as a ledger of format 1.1 does")
    session = raw[len(_OPENING) :].partition(b'"')[0]
    return sha256(b"deedbook-session-1.1\n" + session).hexdigest().encode()
