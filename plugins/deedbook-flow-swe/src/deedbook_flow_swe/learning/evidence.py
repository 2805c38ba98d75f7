"""What several tasks together say about a pattern: evidence, and the criteria of its promotion; pure.

The retrospective of a task names patterns, and may propose to promote them. Whether a pattern is promoted is computed
here, from the rewards of all tasks that named it. Generated tasks never count.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

import attrs

from deedbook import Object

VERSION: Final = "v1"
PATTERN: Final = "pattern"
ANTI_PATTERN: Final = "anti-pattern"
KINDS: Final = (PATTERN, ANTI_PATTERN)

ACCUMULATING: Final = "accumulating"
REFUTED: Final = "refuted"
PROPOSABLE: Final = "proposable"
PROMOTED: Final = "promoted"
"""The states: evidence is missing, a task contradicts it, a proposal would be confirmed, it was promoted."""

_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_LONGEST_TITLE: Final = 200
_LONGEST_TEXT: Final = 8000
_FACTS: Final = ("composite_score", "tool_verified", "integration_verified", "failure_verified", "context_tags")


@attrs.frozen(kw_only=True)
class Mention:
    """A pattern that the retrospective of a task names: its id, *kind*, *title* and *text*.

    *proposed*: the retrospective proposes to promote it.
    """

    pattern: str
    kind: str
    title: str
    text: str
    proposed: bool

    @classmethod
    def parse(cls, row: Object) -> Self:
        """Return the mention in a *row* of a reward."""
        return cls(**{each.name: row[each.name] for each in attrs.fields(cls)})

    @classmethod
    def read(cls, row: Any) -> Self | None:
        """Return the proposal in a *row* of an output of a retrospective; ``None`` if it is none.

        It has ``id``, ``kind``, ``title`` and ``text``. Another id or kind names no pattern. Long texts are cut.
        """
        if not isinstance(row, Mapping):
            return None
        name, kind, title, text = (row.get(key) for key in ("id", "kind", "title", "text"))
        if kind not in KINDS or not (isinstance(name, str) and isinstance(title, str) and isinstance(text, str)):
            return None
        if not _ID.fullmatch(name) or not title.strip():
            return None
        return cls(
            pattern=name, kind=kind, title=title.strip()[:_LONGEST_TITLE], text=text[:_LONGEST_TEXT], proposed=True
        )

    def as_json(self) -> dict[str, Any]:
        """Return the row that `parse` reads."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class Criteria:
    """When a pattern is promoted.

    A pattern needs *tasks* tasks that named it, of which at least *integrations* were verified by integration, and all
    of which have a composite of 1 from tools. An anti-pattern needs *failures* tasks with a failure that a rule or the
    door found.
    """

    tasks: int = 3
    integrations: int = 1
    failures: int = 2


@attrs.frozen(kw_only=True)
class PatternEvidence:
    """The evidence about one pattern: a row for each task that counts, and the *state*, with the *reason* for it.

    *criteria* has what is needed and what is there (`describe_criteria`).
    """

    pattern: str
    kind: str
    rows: tuple[Object, ...]
    criteria: Object
    state: str
    reason: str

    @property
    def tags(self) -> tuple[str, ...]:
        """All tags of the tasks."""
        return tuple(sorted({tag for row in self.rows for tag in row["context_tags"]}))

    @classmethod
    def parse(cls, document: Object) -> Self:
        """Return the evidence in a *document* (``pattern_evidence_v1``)."""
        return cls(
            pattern=document["pattern_candidate"],
            kind=document["kind"],
            rows=tuple(document["evidence"]),
            criteria=document["promotion_criteria"],
            state=document["status"],
            reason=document["reason"],
        )

    def as_json(self) -> dict[str, Any]:
        """Return the document (``pattern_evidence_v1``)."""
        return {
            "schema_version": VERSION,
            "pattern_candidate": self.pattern,
            "kind": self.kind,
            "evidence": [dict(row) for row in self.rows],
            "promotion_criteria": dict(self.criteria),
            "status": self.state,
            "reason": self.reason,
        }


def build_row(reward: Object, session: str) -> dict[str, Any]:
    """Return what the reward of a task says about the patterns that its retrospective named."""
    facts = {name: reward[name] for name in _FACTS}
    return {"task_id": reward["task_id"], "session": session, **facts, "generated": reward["generated"]}


def assess(
    pattern: str, kind: str, rows: Iterable[Object], criteria: Criteria, *, promoted: bool = False
) -> PatternEvidence:
    """Return the evidence in the *rows* of all tasks that named *pattern*; of two rows of a task the later one counts.

    *promoted*: it was promoted before. A task that contradicts a promoted pattern refutes it.
    """
    counted = tuple({(row["task_id"], row["session"]): row for row in rows if not row["generated"]}.values())
    state, reason = (_assess_anti_pattern if kind == ANTI_PATTERN else _assess_pattern)(counted, criteria)
    if promoted and state != REFUTED:
        state, reason = PROMOTED, "it was promoted, and no task contradicts it"
    described = describe_criteria(kind, counted, criteria)
    return PatternEvidence(pattern=pattern, kind=kind, rows=counted, criteria=described, state=state, reason=reason)


def _assess_pattern(rows: Sequence[Object], criteria: Criteria) -> tuple[str, str]:
    worse = [row["task_id"] for row in rows if row["composite_score"] in (0, -1)]
    if worse:
        return REFUTED, f"the composite of {_list(worse)} is not 1"
    unknown = [row["task_id"] for row in rows if row["composite_score"] is None or not row["tool_verified"]]
    if unknown:
        return ACCUMULATING, f"no tool verified {_list(unknown)}"
    if len(rows) < criteria.tasks:
        return ACCUMULATING, f"{len(rows)} of {criteria.tasks} tasks"
    integrated = sum(bool(row["integration_verified"]) for row in rows)
    if integrated < criteria.integrations:
        return ACCUMULATING, f"integration verified {integrated} of {criteria.integrations} tasks"
    return PROPOSABLE, f"{len(rows)} tasks, all with a composite of 1, {integrated} verified by integration"


def _assess_anti_pattern(rows: Sequence[Object], criteria: Criteria) -> tuple[str, str]:
    failures = sum(bool(row["failure_verified"]) for row in rows)
    if failures < criteria.failures:
        return ACCUMULATING, f"{failures} of {criteria.failures} verified failures"
    return PROPOSABLE, f"{failures} verified failures"


def describe_criteria(kind: str, rows: Sequence[Object], criteria: Criteria) -> dict[str, Any]:
    """Return each criterion with what is needed, what is there, and whether that is enough."""

    def row(needed: int, found: int, *, met: bool | None = None) -> dict[str, Any]:
        return {"needed": needed, "found": found, "met": found >= needed if met is None else met}

    if kind == ANTI_PATTERN:
        return {"min_verified_failures": row(criteria.failures, sum(bool(each["failure_verified"]) for each in rows))}
    good = [each for each in rows if each["composite_score"] == 1]
    verified = [each for each in rows if each["tool_verified"]]
    return {
        "min_successful_tasks": row(
            criteria.tasks, len(good), met=len(good) >= criteria.tasks and len(good) == len(rows)
        ),
        "min_tool_verified": row(len(rows), len(verified)),
        "min_integration_coverage": row(
            criteria.integrations, sum(bool(each["integration_verified"]) for each in rows)
        ),
    }


def is_confirmed(evidence: PatternEvidence, mention: Mention) -> bool:
    """Return whether a proposal is confirmed: the retrospective proposes it, and the evidence is enough."""
    return mention.proposed and mention.kind == evidence.kind and evidence.state == PROPOSABLE


def _list(tasks: Sequence[str]) -> str:
    return ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")


def collect_rows(rewards: Iterable[tuple[Object, str]]) -> Mapping[tuple[str, str], list[dict[str, Any]]]:
    """Return the rows of each pattern, by kind and id, in *rewards*, each with the id of its session."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for reward, session in rewards:
        row = build_row(reward, session)
        for name in reward["patterns"]:
            rows = found.setdefault((name["kind"], name["pattern"]), [])
            rows[:] = [each for each in rows if (each["task_id"], each["session"]) != (row["task_id"], session)]
            rows.append(row)
    return found
