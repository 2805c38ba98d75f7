"""Envelope 1.0, as seed 002 wrote it: seven fields, causal fields in the payload, no chain. Checked, never rewritten.

A line is the sorted, compact `json.dumps` of its object, without escapes for non-ASCII text. Only the payload is
hashed, in the same form, so a changed header field does not show; every report says so.
"""

from collections.abc import Iterator
from hashlib import sha256
from sys import intern
from typing import Any, Final

import attrs

from deedbook.format.lines import Lines
from deedbook.format.terminal import few
from deedbook_audit.report import UNWITNESSED, Findings, Report
from deedbook_audit.upcasting.envelope_1_0 import KEYS, TS, VERSION, dump, load

_NO_CHAIN: Final = "format 1.0 hashes payloads only: a changed header, or a line taken out or added, may not show"
_OUTCOMES: Final = ("tool.result", "tool.error")
_SYSTEM: Final = ("system.boot", "system.shutdown")


def verify(path: str, lines: Lines) -> Report:
    """Check a ledger of format 1.0; it may hold any number of sessions."""
    stored, structure = Findings(), Findings()
    sessions: dict[str, _Session] = {}
    for number, line in enumerate(lines, 1):
        stored.checked = number
        row = _check_line(number, line, stored)
        if row is not None:
            structure.checked += 1
            sessions.setdefault(row["session_id"], _Session()).check(number, row, structure)
    notes = few(note for session_id, session in sessions.items() for note in session.notes(session_id))
    return Report(
        file=path,
        format=VERSION,
        level="full",
        session_id=next(iter(sessions)) if len(sessions) == 1 else None,
        state="ended" if sessions and all(session.ended for session in sessions.values()) else "open",
        events=stored.checked,
        head=None,
        bytes=stored.part(),
        structure=structure.part(),
        notes=(UNWITNESSED, _NO_CHAIN, *notes),
        torn=lines.torn,
    )


def _object(line: bytes) -> dict[str, Any]:
    row = load(line)
    if not isinstance(row.get("payload"), dict):
        raise ValueError("no payload that is an object")  # noqa: TRY004 - the error that JSON parsing raises
    return row


def _check_line(number: int, line: bytes, findings: Findings) -> dict[str, Any] | None:
    """Check one line by itself; return it if its header can be used."""
    try:
        row = _object(line)
        spelled, payload = dump(row), dump(row["payload"])
    except ValueError as problem:
        findings.add(number, "json", "an object in one line of UTF-8 JSON", str(problem))
        return None
    if row.keys() != KEYS or row["schema_version"] != VERSION:
        findings.add(number, "header", f'schema_version "1.0" and the keys {sorted(KEYS)}', str(sorted(row)))
        return None
    if not all(isinstance(row[key], str) and row[key] for key in KEYS - {"payload"}):
        findings.add(number, "header", "non-empty strings beside the payload", line)
        return None
    if spelled != line:
        findings.add(number, "canonical", "sorted, compact JSON without a key twice", line)
    if (own := sha256(payload).hexdigest()) != row["payload_hash"]:
        findings.add(number, "payload_hash", own, row["payload_hash"])
    return row


@attrs.define
class _Session:
    """The rules for the events of one session."""

    ended: bool = False
    _root: str | None = None
    _types: dict[str, str] = attrs.field(factory=dict)
    _booted: bool = False
    _off_root: int = 0
    _bare: int = 0

    def check(self, number: int, row: dict[str, Any], findings: Findings) -> None:
        """Check the session's next event."""
        kind, span, parent = row["event_type"], row["payload"].get("_span_id"), row["payload"].get("_parent_span_id")
        if kind in _SYSTEM:
            self._booted, self.ended = True, kind == _SYSTEM[1]
        if not TS.fullmatch(row["ts"]):
            findings.add(number, "ts", "YYYY-MM-DDTHH:MM:SS.mmmZ", row["ts"])
        if not isinstance(span, str) or not span or not isinstance(parent, str | None):
            self._bare += 1
            return
        if parent is None:
            self._check_root(number, kind, span, findings)
        elif parent not in self._types:
            findings.add(number, "parent", "the span of an earlier line", parent)
        elif kind in _OUTCOMES and self._types[parent] != "tool.call":
            findings.add(number, "outcome", f"{kind} under a tool.call", f"it under {self._types[parent]}")
        if span in self._types:
            findings.add(number, "span", "a span that no earlier line has", span)
        self._types[span] = intern(kind)
        if kind in ("session.end", "session.close"):
            self.ended = True
            self._off_root = 0 if parent == self._root else number

    def _check_root(self, number: int, kind: str, span: str, findings: Findings) -> None:
        if kind in _SYSTEM:  # each run of seed 002's system has a root of its own
            return
        if self._root is not None or kind != "session.start":
            findings.add(number, "root", "one event without a parent, session.start", kind)
        self._root = self._root or span

    def notes(self, session_id: str) -> Iterator[str]:
        """Yield deviations that broke no rule of format 1.0."""
        if self._off_root:
            yield f"{session_id}: line {self._off_root}: session.end hangs under the last action, not under the root"
        if self._bare:
            yield f"{session_id}: {self._bare} events without causal fields"
        if not self.ended:
            yield f"{session_id}: no {'system.shutdown' if self._booted else 'session.end'}"
