"""What would change under another charter: recorded calls judged again, counted, the weightiest changes kept.

It speaks the words of ``deedbook lock``: looser is what allows more, tighter what allows less.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook.policy.gates import RANK, by
from deedbook.policy.match import EFFECTS
from deedbook_audit.rederive import RejudgedCall

Way: TypeAlias = Literal["looser", "tighter", "changed"]

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
"""What may have become of a call, the weightiest change first, and how people are told."""

_WEIGHT: Final = {change: rank for rank, change in enumerate(TOTALS)}
_EFFECT: Final = {effects: -rank for rank, effects in enumerate(EFFECTS)}


@attrs.frozen(order=True)
class Changed:
    """One call that is decided otherwise; they sort by weight: what is newly allowed first, the worst effects first."""

    weight: tuple[int, int, int]
    found: RejudgedCall = attrs.field(order=False)

    @property
    def way(self) -> Way:
        """Whether more is allowed than was, or less."""
        was, now = RANK[self.found.call.outcome], RANK[self.now]
        return "looser" if now < was else "tighter" if now > was else "changed"

    @property
    def now(self) -> str:
        """The outcome now."""
        assert self.found.verdict is not None
        return self.found.verdict.outcome

    def by(self) -> Mapping[str, Any]:
        """Return who decides now: who refuses, or the rule that allows; empty where nobody had to."""
        verdict = self.found.verdict
        assert verdict is not None
        if verdict.by is not None:
            return verdict.by
        said = [by(gate, decision) for gate, decision in verdict.policies]
        return next((who for who in said if "rule" in who), said[0] if said else {})

    def as_json(self) -> dict[str, Any]:
        """Return the change as JSON."""
        call, verdict = self.found.call, self.found.verdict
        assert verdict is not None
        return {
            "session": call.session.id,
            "seq": call.seq,
            "ability": call.ability,
            "principal": call.principal,
            "effects": verdict.bound.effects if verdict.bound else None,
            "change": self.found.change,
            "way": self.way,
            "was": {"outcome": call.outcome, "code": call.code, "reason": call.reason, "by": call.by},
            "now": {"outcome": self.now, "code": verdict.code, "reason": verdict.reason, "by": dict(self.by())},
        }


class WhatIf:
    """Counts calls that were judged again and keeps the *limit* weightiest changes (0: all of them).

    *totals* counts by change, *ways* the changes by way, *reasons* why calls are undetermined.
    """

    def __init__(self, limit: int) -> None:
        self.totals: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.changes: list[Changed] = []
        self._limit = limit

    @property
    def changed(self) -> int:
        """How many calls are decided otherwise."""
        return sum(self.ways.values())

    def take(self, found: Iterable[RejudgedCall]) -> None:
        """Take the calls of one session in."""
        same = 0
        for each in found:
            if each.change == "same":
                same += 1
            else:
                self._take(each)
        self.totals["same"] += same

    def _take(self, found: RejudgedCall) -> None:
        self.totals[found.change] += 1
        if found.change == "undetermined":
            self.reasons[found.why] += 1
            return
        assert found.verdict is not None
        bound = found.verdict.bound
        effect = _EFFECT[bound.effects] if bound else 0
        changed = Changed((_WEIGHT[found.change], effect, sum(self.ways.values())), found)
        self.ways[changed.way] += 1
        if not self._limit or len(self.changes) < self._limit or changed < self.changes[-1]:
            insort(self.changes, changed)
            del self.changes[self._limit or len(self.changes) :]

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {
            "totals": {change: self.totals[change] for change in TOTALS},
            "looser": self.ways["looser"],
            "tighter": self.ways["tighter"],
            "changed": self.changed,
            "undetermined": [{"why": why, "calls": calls} for why, calls in self.reasons.most_common()],
            "changes": [change.as_json() for change in self.changes],
        }
