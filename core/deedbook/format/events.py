"""The format of the ledger: one event, one line; no I/O.

A line is a fixed template (``docs/ledger-format.md``). Its header holds the causal fields and the hash of the payload;
`seal_line` hashes the header's bytes and closes the line. Nothing here needs a JSON library: header strings are ASCII
without quotes, backslashes or controls, and the payload comes as canonical bytes.
"""

import os
import re
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import filterfalse
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from deedbook.contract import Event

from .errors import LedgerError, fault

FORMAT: Final = "1.1"
ACTORS: Final = frozenset({"runtime", "user", "agent", "tool", "policy", "system"})
MAX_PAYLOAD: Final = 1024 * 1024

SESSION_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
PRINCIPAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}")
EVENT_TYPE: Final = re.compile(r"(?=.{3,64}\Z)[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+")
TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""A ``traceparent`` of W3C Trace Context, as version 00 defines it."""

HEADER: Final = re.compile(
    rb'\{"schema_version":"1\.1","session_id":"(?P<session_id>[A-Za-z0-9][A-Za-z0-9_-]{0,127})"'
    rb',"trace_id":"(?P<trace_id>[0-9a-f]{32})","seq":(?P<seq>0|[1-9][0-9]{0,15})'
    rb',"ts":"(?P<ts>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z)"'
    rb',"event_type":"(?P<event_type>[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+)"'
    rb',"actor":"(?P<actor>runtime|user|agent|tool|policy|system)"'
    rb',"principal":(?:null|"(?P<principal>[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127})")'
    rb',"span_id":"(?P<span_id>[0-9a-f]{16})","parent_span_id":(?:null|"(?P<parent_span_id>[0-9a-f]{16})")'
    rb',"payload_hash":"(?P<payload_hash>[0-9a-f]{64})","prev_envelope_hash":"(?P<prev_envelope_hash>[0-9a-f]{64})"'
    rb',"envelope_hash":"(?P<envelope_hash>[0-9a-f]{64})","payload":(?=\{)'
)
"""The header of a line of format 1.1; the payload follows, up to the closing ``}``."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType({"tool.invoke": "tool.call", "session.close": "session.end"})
"""Older names of event types: accepted when reading, never written."""

AFTER_END: Final = ("event.amended", "payload.erased", "ledger.")
"""Events that may follow ``session.end``: two types and one family."""

EXCISED_KEY: Final = "$excised"
"""The only member of the object that replaces an excised payload."""
UNEXCISABLE: Final = ("ledger.", "session.", "system.", "payload.", "approval.granted", "approval.answered")
"""Types and families whose payloads stay: the ledger, its proofs and a person's consent depend on them."""

BARE: Final = frozenset({"ledger.key", "ledger.leaf", "ledger.checkpoint", "ledger.witnessed"})
"""The events of a log: hashes, counts, keys, signatures. They are never scrubbed or sealed."""


class Entry(NamedTuple):
    """An event to be written. *label* comes from `label`; *payload* is the canonical JSON of an object."""

    label: str
    span: str
    parent: str | None
    payload: bytes
    payload_hash: str | None = None


@lru_cache(maxsize=4096)
def label(event_type: str, actor: str, principal: str | None) -> str:
    """Return the part of a header with type, actor and principal; checks all three against the format."""
    if not EVENT_TYPE.fullmatch(event_type) or actor not in ACTORS:
        raise LedgerError(fault("LEDGER_BROKEN", f"event type {event_type!r} of actor {actor!r} is not in the format"))
    if principal is not None and not PRINCIPAL.fullmatch(principal):
        raise LedgerError(fault("LEDGER_BROKEN", f"principal {principal!r} is not in the format"))
    who = "null" if principal is None else f'"{principal}"'
    return f'"event_type":"{event_type}","actor":"{actor}","principal":{who},'


@lru_cache(maxsize=4096)
def split_label(label_: str) -> tuple[str, str, str | None]:
    """Return event type, actor and principal of a `label`."""
    parts = orjson.loads(f"{{{label_[:-1]}}}")
    return parts["event_type"], parts["actor"], parts["principal"]


def first_hash(session_id: str) -> str:
    """Return the previous hash that a session's first line names."""
    return sha256(f"deedbook-session-1.1\n{session_id}".encode()).hexdigest()


def first_workspace_hash(ledger_id: str) -> str:
    """Return the previous hash that a workspace ledger's first line names."""
    return sha256(f"deedbook-workspace-1.1\n{ledger_id}".encode()).hexdigest()


def line_prefix(session_id: str, trace_id: str) -> str:
    """Return the part of the header that all lines of a ledger share."""
    return f'{{"schema_version":"1.1","session_id":"{session_id}","trace_id":"{trace_id}","seq":'


def seal_line(prefix: str, seq: int, ts: str, prev: str, entry: Entry) -> tuple[bytes, str]:
    """Return the finished line with its newline, and its envelope hash."""
    label_, span, parent, payload, payload_hash = entry
    above = f'"{parent}"' if parent else "null"
    header = (
        f'{prefix}{seq},"ts":"{ts}",{label_}"span_id":"{span}","parent_span_id":{above},'
        f'"payload_hash":"{payload_hash or sha256(payload).hexdigest()}","prev_envelope_hash":"{prev}"'
    ).encode()
    envelope_hash = sha256(header).hexdigest()
    return b"".join(
        (header, b',"envelope_hash":"', envelope_hash.encode(), b'","payload":', payload, b"}\n")
    ), envelope_hash


class Line(NamedTuple):
    """A parsed line of format 1.1; *header* is what `envelope_hash` covers, *payload* the stored bytes."""

    session_id: str
    trace_id: str
    seq: int
    ts: str
    event_type: str
    actor: str
    principal: str | None
    span_id: str
    parent_span_id: str | None
    payload_hash: str
    prev_envelope_hash: str
    envelope_hash: str
    header: bytes
    payload: bytes

    @property
    def sound(self) -> bool:
        """Whether both hashes match the stored bytes, or the payload was excised."""
        return sha256(self.header).hexdigest() == self.envelope_hash and (
            sha256(self.payload).hexdigest() == self.payload_hash or self.payload == excised_form(self.payload_hash)
        )

    @property
    def is_excised(self) -> bool:
        """Whether the line states that its payload was excised, and its header is unchanged."""
        return sha256(self.header).hexdigest() == self.envelope_hash and self.payload == excised_form(self.payload_hash)

    @property
    def event(self) -> Event:
        """The line as folds see it; an older name of its type is replaced by the current one."""
        event_type = ALIASES.get(self.event_type, self.event_type)
        payload = orjson.loads(self.payload)
        return Event(
            self.seq, event_type, self.actor, self.principal, self.span_id, self.parent_span_id, self.ts, payload
        )


def split_line(raw: bytes, *, place: str | None = None) -> Line:
    """Parse a line, with its newline or without; one that does not fit the template is ``LEDGER_UNSOUND``."""
    match = HEADER.match(raw)
    if not match or not raw.endswith((b"}", b"}\n")):
        raise LedgerError(fault("LEDGER_UNSOUND", "not a line of format 1.1; verify the file", place=place))
    text = {name: None if part is None else part.decode() for name, part in match.groupdict().items()}
    header = raw[: match.start("envelope_hash") - len(b',"envelope_hash":"')]
    payload = raw[match.end() : -2 if raw.endswith(b"\n") else -1]
    return Line(**{**text, "seq": int(match["seq"])}, header=header, payload=payload)  # type: ignore[arg-type]


def excised_form(payload_hash: str) -> bytes:
    """Return the replacement of an excised payload with that hash."""
    return b'{"%b":"%b"}' % (EXCISED_KEY.encode(), payload_hash.encode())


def is_ended(types_from_last: Iterable[str]) -> bool:
    """Return whether a ledger has ended, from its event types read backwards; only amendments may follow the end."""
    return next((name for name in types_from_last if not name.startswith(AFTER_END)), "") == "session.end"


def timestamp(seconds: float) -> str:
    """Return *seconds* since the epoch as RFC 3339 in UTC with milliseconds."""
    return _millisecond(int(seconds * 1000))


@lru_cache(maxsize=8)
def _millisecond(milliseconds: int) -> str:
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


class Spans:
    """Random span ids (W3C Trace Context: 8 bytes), unique in one process; a ledger refuses to write after a fork.

    An id of digits only is skipped, since detectors would take it for a card number; this also excludes all zeros.
    """

    def __init__(self) -> None:
        self._pool: list[str] = []

    def __call__(self) -> str:
        """Return 16 lower-case hex digits that were not returned before."""
        try:
            return self._pool.pop()
        except IndexError:
            self._pool.extend(filterfalse(str.isdigit, os.urandom(2048).hex(" ", 8).split()))
            return self()


_CARD_LIKE: Final = re.compile("[0-9]{16}")


def new_id() -> str:
    """Return a session id: 128 random bits as 32 hex digits.

    An id with 16 consecutive digits is skipped: after a prefix, detectors would take it for a card number and seal it.
    """
    while _CARD_LIKE.search(made := os.urandom(16).hex()):
        pass
    return made
