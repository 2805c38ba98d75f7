"""The events of seed 000's store, checked by the rules of their time: ids, parents, one session.

The lines have no hashes, so a file that breaks no rule is still not called sound. Notes say which of the events that
seed 000 requires of a run are missing.
"""

from collections import Counter
from collections.abc import Iterator
from sys import intern
from typing import Any, Final

import attrs

from deedbook.format.lines import Lines
from deedbook_audit.report import UNHASHED, Findings, Report
from deedbook_audit.upcasting.envelope_1_0 import Row, load, moment
from deedbook_audit.upcasting.seed_000 import FORM, KEYS, SCHEMA

_WANTED: Final = (
    "session.start", "hook.fired", "skill.invoke", "agent.transition", "llm.request", "llm.response", "tool.invoke",
    "tool.result", "worker.report", "skill.complete", "session.close",
)  # fmt: skip
_PAIRS: Final = (("llm.request", "llm.response"), ("tool.invoke", "tool.result"))
_CLOSING: Final = ("session.close", "session.end")


def verify(path: str, lines: Lines) -> Report:
    """Check a ledger of seed 000's form, which holds one session."""
    stored, structure = Findings(), Findings()
    session = _Session()
    for number, line in enumerate(lines, 1):
        stored.checked = number
        row = _check_line(number, line, stored)
        if row is not None:
            structure.checked += 1
            session.check(number, row, structure)
    if not stored.checked:
        stored.add(0, "empty", "at least one line", "none")
    return Report(
        file=path,
        format=FORM,
        level="full",
        session_id=session.id,
        state="ended" if session.ended else "open",
        events=stored.checked,
        head=None,
        bytes=stored.part(),
        structure=structure.part(),
        notes=(UNHASHED, *session.notes()),
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
    if row.keys() != KEYS and row.keys() != KEYS - {"parent_id"}:
        findings.add(number, "header", f"the keys {sorted(KEYS)}", str(sorted(row)))
        return None
    if row["schema_version"] != SCHEMA:
        findings.add(number, "header", f'schema_version "{SCHEMA}"', str(row["schema_version"]))
        return None
    if not all(isinstance(row[key], str) and row[key] for key in ("id", "session_id", "type", "actor")):
        findings.add(number, "header", "id, session_id, type and actor: strings that are not empty", line)
        return None
    if not isinstance(row.get("parent_id"), str | None):
        findings.add(number, "header", "parent_id: an id, or null", str(row["parent_id"]))
        return None
    if moment(row["ts"]) is None:
        findings.add(number, "ts", "a time: ISO 8601, or seconds since 1970", str(row["ts"]))
    return row


@attrs.define
class _Session:
    """The rules for the events of the session."""

    id: str | None = None
    ended: bool = False
    _ids: dict[str, str] = attrs.field(factory=dict)
    _types: Counter[str] = attrs.field(factory=Counter)
    _ok: Any = None
    _latest: str = ""
    _backwards: int = 0
    _first: str = ""

    def check(self, number: int, row: Row, findings: Findings) -> None:
        """Check the next event."""
        identity, parent, kind = row["id"], row.get("parent_id"), row["type"]
        self.id, self._first = self.id or row["session_id"], self._first or kind
        if row["session_id"] != self.id:
            findings.add(number, "session_id", f"the one of the first line, {self.id}", row["session_id"])
        if identity in self._ids:
            findings.add(number, "id", "an id that no earlier line has", identity)
        if parent is not None and parent not in self._ids:
            findings.add(number, "parent", "the id of an earlier line", parent)
        elif parent is not None and kind == "tool.result" and self._ids[parent] != "tool.invoke":
            findings.add(number, "outcome", "tool.result under a tool.invoke", f"it under {self._ids[parent]}")
        self._ids.setdefault(identity, intern(kind))
        self._take(kind, row)

    def _take(self, kind: str, row: Row) -> None:
        self._types[kind] += 1
        if kind in _CLOSING:
            self.ended = True
            self._ok = row["payload"].get("ok") if isinstance(row["payload"], dict) else None
        ts = moment(row["ts"]) or self._latest
        self._backwards += ts < self._latest
        self._latest = ts

    def notes(self) -> Iterator[str]:
        """Yield deviations that broke no rule of seed 000."""
        if self._first not in ("", "session.start"):
            yield f"the first event is {self._first}, not session.start"
        if not self.ended:
            yield "no session.close"
        if self._backwards:
            yield f"ts goes back {self._backwards} times; the order is that of the lines"
        for intent, outcome in _PAIRS:
            if lacking := self._types[intent] - self._types[outcome]:
                what = f"{lacking} {intent} without" if lacking > 0 else f"{-lacking} more {outcome} than"
                yield f"audit incomplete: {what} {outcome if lacking > 0 else intent}"
        lacking_types = [kind for kind in _WANTED if not self._types[kind]]
        if self._ok is True and lacking_types:
            yield f"audit incomplete: a successful run without {', '.join(lacking_types)}"
