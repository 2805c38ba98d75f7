"""Ledgers for tests: begin one, make entries, and check a file with json and hashlib alone."""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from deedbook.format.canonical import encode
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook.ledger.chain import Chain
from deedbook.ledger.ledger import Ledger, WorkspaceLedger

SESSION, TRACE = "5e" * 16, "7a" * 16
NAME = ".events.jsonl"


def begin(place: Path, **settings: Any) -> Ledger:
    """Create a session's ledger in *place*, with its root."""
    ledger = Ledger.create(Folder.at(place, create=True), SESSION, TRACE, **settings)
    ledger.append([Entry(label("session.start", "runtime", None), ledger.span(), None, b"{}")])
    return ledger


def again(place: Path, **settings: Any) -> Ledger:
    """Open the ledger in *place* again."""
    return Ledger.reopen(Folder.at(place), **settings)


def shared(state: Path, **settings: Any) -> WorkspaceLedger:
    """Open the workspace ledger in the folder *state*."""
    with Folder.at(state, create=True) as folder:
        return WorkspaceLedger.open(folder, **{"workspace": "home", "kernel": "0.1.0", **settings})


def note(ledger: Chain, text: str = "hi", event_type: str = "user.message") -> Entry:
    """Make an entry under the root."""
    return Entry(label(event_type, "user", "ada"), ledger.span(), ledger.root, encode({"text": text}))


def checked(place: Path, first: str = "deedbook-session-1.1\n") -> list[dict[str, Any]]:
    """Return the lines of the ledger in *place*, after checking that all are whole, every hash, the chain, the tree."""
    raw = (place / NAME).read_bytes()
    assert raw.endswith(b"\n")
    lines = [json.loads(line) for line in raw[:-1].split(b"\n")]
    prev, spans = sha256(f"{first}{lines[0]['session_id']}".encode()).hexdigest(), set[str]()
    for seq, (line, stored) in enumerate(zip(lines, raw[:-1].split(b"\n"), strict=True)):
        header, _, rest = stored.partition(b',"envelope_hash":"')
        payload = re.fullmatch(rb'[0-9a-f]{64}","payload":(.*)}', rest, re.DOTALL)[1]
        assert line["seq"] == seq
        assert line["prev_envelope_hash"] == prev
        assert sha256(header).hexdigest() == line["envelope_hash"]
        assert sha256(payload).hexdigest() == line["payload_hash"]
        assert line["parent_span_id"] in spans if seq else line["parent_span_id"] is None
        assert line["span_id"] not in spans
        prev = line["envelope_hash"]
        spans.add(line["span_id"])
    return lines


def types(lines: list[dict[str, Any]]) -> list[str]:
    """Return the event types of *lines*."""
    return [line["event_type"] for line in lines]


def code(caught: Any) -> str:
    """Return the code of the first error that was raised."""
    found: str = caught.value.error.code
    return found


class Clock:
    """A clock that shows what it is told to."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the seconds since the epoch."""
        return self.now
