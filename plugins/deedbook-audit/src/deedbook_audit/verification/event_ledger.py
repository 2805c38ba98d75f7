"""The lines of seed 002's `EventLedger`, checked as far as possible: they have no hashes, so nothing is verified.

The check covers the fields of each line, and the seed's rules for boots and shutdowns. A file that breaks no rule is
still not called sound.
"""

from collections.abc import Iterator
from typing import Any, Final

import attrs

from deedbook.format.lines import Lines
from deedbook_audit.report import UNHASHED, Findings, Report
from deedbook_audit.upcasting.envelope_1_0 import Row, load, moment
from deedbook_audit.upcasting.event_ledger import FORM, is_line, session_of

_FIELDS: Final = "the fields ts, event_type, session_id and payload"


def verify(path: str, lines: Lines) -> Report:
    """Check a file of this form; it may hold any number of sessions."""
    stored, structure, runs = Findings(), Findings(), _Runs()
    sessions: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        stored.checked = number
        row = _check_line(number, line, stored)
        if row is not None:
            structure.checked += 1
            sessions[session_of(row)] = None
            runs.check(number, row, structure)
    return Report(
        file=path,
        format=FORM,
        level="full",
        session_id=next(iter(sessions)) if len(sessions) == 1 else None,
        state="unknown",
        events=stored.checked,
        head=None,
        bytes=stored.part(),
        structure=structure.part(),
        notes=(UNHASHED, *runs.notes()),
        torn=lines.torn,
        hashed=False,
    )


def _check_line(number: int, line: bytes, findings: Findings) -> Row | None:
    """Check one line by itself; return it if it can be used."""
    try:
        row = load(line)
    except ValueError as problem:
        findings.add(number, "json", "an object in one line of UTF-8 JSON", str(problem))
        return None
    if not is_line(row):
        findings.add(number, "header", _FIELDS, str(sorted(row)))
        return None
    kind, session = row["event_type"], row.get("session_id")
    if not isinstance(kind, str) or not kind or not isinstance(session, str | None):
        findings.add(number, "header", "event_type: a string that is not empty; session_id: a string, or null", line)
        return None
    if not isinstance(row["payload"], dict):
        findings.add(number, "header", "payload: an object", line)
        return None
    if moment(row["ts"]) is None:
        findings.add(number, "ts", "a time: seconds since 1970, or ISO 8601", str(row["ts"]))
    return row


@attrs.define
class _Runs:
    """The runs of the system in a file: each boots once, and shuts down at most once."""

    _booted: set[Any] = attrs.field(factory=set)
    _shut_down: set[Any] = attrs.field(factory=set)
    _unbooted: int = 0
    _backwards: int = 0
    _latest: str = ""

    def check(self, number: int, row: Row, findings: Findings) -> None:
        """Check the next line."""
        ts = moment(row["ts"]) or self._latest
        self._backwards += ts < self._latest
        self._latest = ts
        kind, run = row["event_type"], row["payload"].get("run_id")
        if not isinstance(run, str) or kind not in ("system.boot", "system.shutdown"):
            return
        seen = self._booted if kind == "system.boot" else self._shut_down
        if run in seen:
            findings.add(number, "run", f"one {kind} of each run", f"another one of {run}")
        self._unbooted += kind == "system.shutdown" and run not in self._booted
        seen.add(run)

    def notes(self) -> Iterator[str]:
        """Yield deviations that break no rule."""
        if open_ := len(self._booted - self._shut_down):
            yield f"runs without a system.shutdown: {open_}"
        if self._unbooted:
            yield f"runs without a system.boot before their system.shutdown: {self._unbooted}"
        if self._backwards:
            yield f"ts goes back {self._backwards} times; the order is that of the lines"
