"""The changes under another charter: recorded calls judged again and counted, the most important changes kept.

It uses the words of ``deedbook lock``: looser allows more, tighter allows less.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook.policy.gates import RANK, decision_source
from deedbook.policy.match import EFFECTS
from deedbook_audit.rederive import RejudgedCall
from deedbook_audit.subjects import RejudgedSubject

from .subject_changes import SubjectChanges

Direction: TypeAlias = Literal["looser", "tighter", "changed"]

TOTALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "same": "same",
        "allowed": "newly allowed",
        "denied": "newly denied",
        "missing": "not declared any more",
        "asks": "now asks",
        "rewritten": "with other arguments",
        "undetermined": "undetermined",
    }
)
"""The possible changes of a call, the most important first, and their words for people."""

_WEIGHT: Final = {change: rank for rank, change in enumerate(TOTALS)}
_EFFECT: Final = {effects: -rank for rank, effects in enumerate(EFFECTS)}


@attrs.frozen(order=True)
class DecisionChange:
    """One call with another decision; they sort by weight: newly allowed first, the worst effects first."""

    weight: tuple[int, int, int]
    rejudged: RejudgedCall = attrs.field(order=False)

    @property
    def direction(self) -> Direction:
        """Whether more is allowed than before, or less."""
        was, now = RANK[self.rejudged.call.outcome], RANK[self.now]
        return "looser" if now < was else "tighter" if now > was else "changed"

    @property
    def now(self) -> str:
        """The outcome now."""
        assert self.rejudged.verdict is not None
        return self.rejudged.verdict.outcome

    def find_decider(self) -> Mapping[str, Any]:
        """Return the decider now: who refuses, or the rule that allows; empty if no gate had to decide."""
        verdict = self.rejudged.verdict
        assert verdict is not None
        if verdict.by is not None:
            return verdict.by
        deciders = [decision_source(gate, decision) for gate, decision in verdict.policies]
        return next((who for who in deciders if "rule" in who), deciders[0] if deciders else {})

    def as_json(self) -> dict[str, Any]:
        """Return the change as JSON."""
        call, verdict = self.rejudged.call, self.rejudged.verdict
        assert verdict is not None
        return {
            "session": call.session.id,
            "seq": call.seq,
            "ability": call.ability,
            "principal": call.principal,
            "effects": verdict.bound.effects if verdict.bound else None,
            "change": self.rejudged.change,
            "way": self.direction,
            "was": {"outcome": call.outcome, "code": call.code, "reason": call.reason, "by": call.by},
            "now": {
                "outcome": self.now,
                "code": verdict.code,
                "reason": verdict.reason,
                "by": dict(self.find_decider()),
            },
        }


class WhatIf:
    """Counts rejudged calls and keeps the *limit* most important changes (0: all of them).

    *totals* counts by change, *directions* the changes by direction, *reasons* why calls are undetermined. *subjects*
    has the decisions about subjects.
    """

    def __init__(self, limit: int) -> None:
        self.totals: Counter[str] = Counter()
        self.directions: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.changes: list[DecisionChange] = []
        self.subjects = SubjectChanges(limit)
        self._limit = limit

    @property
    def changed_count(self) -> int:
        """The number of calls with another decision."""
        return sum(self.directions.values())

    def add(self, found: Iterable[RejudgedCall | RejudgedSubject]) -> None:
        """Add the decisions of one session."""
        same = 0
        for each in found:
            if isinstance(each, RejudgedSubject):
                self.subjects.add(each)
            elif each.change == "same":
                same += 1
            else:
                self._add(each)
        self.totals["same"] += same

    def _add(self, found: RejudgedCall) -> None:
        self.totals[found.change] += 1
        if found.change == "undetermined":
            self.reasons[found.why] += 1
            return
        assert found.verdict is not None
        bound = found.verdict.bound
        effect = _EFFECT[bound.effects] if bound else 0
        changed = DecisionChange((_WEIGHT[found.change], effect, sum(self.directions.values())), found)
        self.directions[changed.direction] += 1
        if not self._limit or len(self.changes) < self._limit or changed < self.changes[-1]:
            insort(self.changes, changed)
            del self.changes[self._limit or len(self.changes) :]

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "totals": {change: self.totals[change] for change in TOTALS},
            "looser": self.directions["looser"],
            "tighter": self.directions["tighter"],
            "changed": self.changed_count,
            "undetermined": [{"why": why, "calls": calls} for why, calls in self.reasons.most_common()],
            "changes": [change.as_json() for change in self.changes],
            **({"subjects": self.subjects.as_json()} if self.subjects.all else {}),
        }
