"""Requests to a witness and their answers, in the form of C2SP (c2sp.org/tlog-witness); pure.

A request is the line ``old N``, the hashes of a consistency proof in base64, one a line, a blank line and a signed
checkpoint. An answer is a status and a text: the cosignature's line (200), the size that the witness knows (409).
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Final, NoReturn, Self

import attrs

from deedbook.format.checkpoints import HASH_BYTES, MAX_SIZE, Checkpoint
from deedbook.format.errors import SignatureError, fault
from deedbook.format.notes import Note

MAX_BODY: Final = 65536
"""The longest request and the longest answer, in bytes."""
MAX_PROOF: Final = 63
"""The most hashes in a proof of consistency of two trees."""

DONE: Final = 200
BAD: Final = 400
FORBIDDEN: Final = 403
UNKNOWN: Final = 404
CONFLICT: Final = 409
INCONSISTENT: Final = 422
BROKEN: Final = 500
BUSY: Final = 503

REQUESTS: Final = "requests"
ANSWERS: Final = "answers"
CHECKPOINTS: Final = "checkpoints"
"""The folders of a witness that is reached by files."""

SIZE_TYPE: Final = "text/x.tlog.size"
TEXT_TYPE: Final = "text/plain; charset=utf-8"

_OLD: Final = re.compile("old (0|[1-9][0-9]{0,18})")
_SIZE: Final = re.compile("(0|[1-9][0-9]{0,18})\n")


@attrs.frozen
class Request:
    """One request: the size *old* that the witness probably knows, the proof from there, the signed *note*."""

    old: int
    proof: tuple[bytes, ...]
    note: Note
    checkpoint: Checkpoint

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Parse a request; raises `SignatureError` (``NOTE_INVALID``). Nothing is verified."""
        if len(body) > MAX_BODY:
            _refuse(f"it has {len(body)} bytes; at most {MAX_BODY} are read")
        try:
            above, blank, note = body.decode().partition("\n\n")
        except UnicodeDecodeError:
            _refuse("it is not UTF-8")
        first, *lines = above.split("\n")
        old = _OLD.fullmatch(first)
        if not blank or not old or int(old[1]) > MAX_SIZE:
            _refuse("the line `old N`, lines of hashes, a blank line and a checkpoint are expected")
        if len(lines) > MAX_PROOF:
            _refuse(f"its proof has {len(lines)} hashes; at most {MAX_PROOF} are read")
        signed = Note.parse(note)
        return cls(int(old[1]), tuple(map(_hash, lines)), signed, Checkpoint.parse(signed.text))

    def __bytes__(self) -> bytes:
        return body(self.old, self.proof, str(self.note))


@attrs.frozen
class Answer:
    """An answer of a witness: an HTTP *status*, and a *text*."""

    status: int
    text: str

    @property
    def type(self) -> str:
        """The content type of the text, for HTTP."""
        return SIZE_TYPE if self.status == CONFLICT else TEXT_TYPE

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Parse the file that `bytes` makes; raises `ValueError`."""
        status, blank, text = raw.decode().partition("\n")
        if not blank or not re.fullmatch("[1-5][0-9]{2}", status):
            raise ValueError("an answer is a line with a status of HTTP, and a text")
        return cls(int(status), text)

    @property
    def size(self) -> int | None:
        """The size that the witness knows, if it answers with one."""
        found = _SIZE.fullmatch(self.text) if self.status == CONFLICT else None
        return int(found[1]) if found else None

    def __bytes__(self) -> bytes:
        return f"{self.status}\n{self.text}".encode()


def body(old: int, proof: Iterable[bytes], note: str) -> bytes:
    """Return the bytes of a request."""
    lines = (f"{b64encode(each).decode()}\n" for each in proof)
    return f"old {old}\n{''.join(lines)}\n{note}".encode()


def origin_hash(origin: str) -> str:
    """Return the name of the newest checkpoint of *origin* in requests: SHA-256 in hex."""
    return sha256(origin.encode()).hexdigest()


def _hash(line: str) -> bytes:
    try:
        raw = b64decode(line, validate=True)
    except ValueError:
        raw = b""
    if len(raw) != HASH_BYTES or b64encode(raw).decode() != line:
        _refuse("a line of its proof is not the base64 of 32 bytes")
    return raw


def _refuse(why: str) -> NoReturn:
    raise SignatureError(fault("NOTE_INVALID", f"not a request to a witness: {why}"))
