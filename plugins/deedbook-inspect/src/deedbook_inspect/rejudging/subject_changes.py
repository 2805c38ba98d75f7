"""The changes of decisions about subjects under another charter: counted, and the first ones kept."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from deedbook_audit.subjects import RejudgedSubject

SUBJECT_TOTALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "same": "same",
        "looser": "looser",
        "tighter": "tighter",
        "changed": "by another rule, or with other signals",
        "missing": "not judged any more",
        "undetermined": "undetermined",
    }
)
"""The possible changes of a decision about a subject, and their words for people."""
_UNCHANGED: Final = frozenset({"same", "undetermined"})


class SubjectChanges:
    """Counts rejudged subjects and keeps the first *limit* changes (0: all of them)."""

    def __init__(self, limit: int) -> None:
        self.totals: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.changes: list[RejudgedSubject] = []
        self._limit = limit

    @property
    def all(self) -> int:
        """The number of decisions."""
        return sum(self.totals.values())

    @property
    def changed_count(self) -> int:
        """The number of decisions that differ now."""
        return sum(count for change, count in self.totals.items() if change not in _UNCHANGED)

    def add(self, found: RejudgedSubject) -> None:
        """Add a decision."""
        self.totals[found.change] += 1
        if found.change == "undetermined":
            self.reasons[found.why] += 1
        elif found.change != "same" and (not self._limit or len(self.changes) < self._limit):
            self.changes.append(found)

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "totals": {change: self.totals[change] for change in SUBJECT_TOTALS},
            "undetermined": [{"why": why, "decisions": count} for why, count in self.reasons.most_common()],
            "changes": [describe_change(each) for each in self.changes],
        }


def describe_change(found: RejudgedSubject) -> dict[str, Any]:
    """Return a change as JSON: what was judged, and the recorded and the present answer."""
    recorded = found.subject
    return {
        "session": recorded.session.id,
        "seq": recorded.seq,
        "policy": recorded.policy,
        "subject": recorded.name,
        "change": found.change,
        "why": found.why,
        "was": answer_json(recorded.line),
        "now": answer_json(found.record) if found.record else None,
    }


def answer_json(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of ``policy.check`` without the policy's name and digest."""
    return {name: line[name] for name in ("decision", "reason", "rule", "signals") if name in line}


def format_change(found: RejudgedSubject) -> str:
    """Return a change in one line: its direction, its subject, both answers, and the deciding rule."""
    recorded, now = found.subject, found.record
    details = ", ".join(str(part) for part in (now.get("rule"), found.why) if part)
    answers = f"{recorded.line.get('decision')} → {now['decision']}" if now else str(recorded.line.get("decision"))
    why = f" ({details})" if details else ""
    place = f"{recorded.session.id[:12]} {recorded.seq}"
    return f"{found.change:8}{recorded.name} by {recorded.policy}: {answers}{why} at {place}"
