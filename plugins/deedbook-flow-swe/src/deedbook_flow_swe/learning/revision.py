"""Revisions of a routing policy from data: which tiers led to outputs that were sent back; pure.

The rule is deterministic and stands in docs/rewards.md. `revise` gives the same policy for the same counts, so that
a recorded revision can be checked.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import attrs

from deedbook import Object
from deedbook_flow_swe.task_record import Block, TaskRecord

from .routing import DEFAULT, RevisionTerms, RoutingPolicy, digest_policy

RAISE: Final = "raise"
LOWER: Final = "lower"
KEEP: Final = "keep"
TOO_FEW: Final = "not enough data"


@attrs.frozen(kw_only=True)
class TierCount:
    """How a tier did that a rule chose for a phase: its *runs*, and how many of them were *sent_back*.

    A run is sent back if a later phase sends its outputs back, or if a rule or the door refuses them.
    """

    phase: str
    rule: str
    tier: str
    runs: int
    sent_back: int

    @property
    def percent(self) -> float:
        """The share of runs that were sent back, in percent."""
        return 100 * self.sent_back / self.runs

    def as_json(self) -> dict[str, Any]:
        """Return the row in a recorded revision."""
        return attrs.asdict(self)

    @classmethod
    def parse(cls, row: Object) -> "TierCount":
        """Return the count in a *row* of a recorded revision."""
        return cls(**{each.name: row[each.name] for each in attrs.fields(cls)})

    def judge(self, terms: RevisionTerms) -> str:
        """Return what the count says about the tier; whole numbers are compared, so that nothing is rounded."""
        if self.runs < terms.runs:
            return TOO_FEW
        if 100 * self.sent_back >= terms.raise_at * self.runs:
            return RAISE
        if terms.lower_at is not None and 100 * self.sent_back <= terms.lower_at * self.runs:
            return LOWER
        return KEEP


@attrs.frozen(kw_only=True)
class Change:
    """A rule of a phase, or its default, that gets another tier, with the count that is the reason."""

    phase: str
    rule: str
    from_tier: str
    to_tier: str
    runs: int
    sent_back: int

    def as_json(self) -> dict[str, Any]:
        """Return the row in a recorded revision."""
        return attrs.asdict(self)


def count_tiers(records: Iterable[TaskRecord]) -> list[TierCount]:
    """Return the counts of all combinations of phase, rule and tier in ended tasks, sorted."""
    counts: dict[tuple[str, str, str], list[int]] = {}
    for record in records:
        for run in record.runs if record.ended is not None else ():
            refused = {block.unit for block in run.blocks if _is_own_fault(record, block)}
            for choice in run.models:
                row = counts.setdefault((run.phase, choice.rule, choice.tier), [0, 0])
                row[0] += 1
                row[1] += bool(refused & {None, choice.unit}) or run.is_faulty(choice)
    return [
        TierCount(phase=phase, rule=rule, tier=tier, runs=runs, sent_back=back)
        for (phase, rule, tier), (runs, back) in sorted(counts.items())
    ]


def _is_own_fault(record: TaskRecord, block: Block) -> bool:
    """Return whether a run is at fault for its block: not if the task was sent back to an earlier phase instead."""
    if block.by != "rule":
        return block.by == "denied"
    moves = (each for each in record.rollbacks if each.issue == block.issue)
    return not any(each.from_phase == block.phase != each.to_phase for each in moves)


def select_evidence(records: Iterable[TaskRecord], pipeline: str, *, generated: bool) -> list[TaskRecord]:
    """Return the ended tasks of *pipeline* that count; generated ones only if they are asked for."""
    found = (each for each in records if each.pipeline == pipeline and each.ended is not None)
    return [each for each in found if generated or not each.generated]


def find_in_force(policy: Object, revision: Object | None) -> tuple[Object, int | None]:
    """Return the policy in force and the event that revised it: the charter's *policy*, or its last *revision*.

    A revision of another policy does not count: if the charter's policy is edited, the edited one is in force.
    """
    if revision is None or revision["base"] != digest_policy(policy):
        return policy, None
    return revision["policy"], revision["seq"]


def revise(policy: RoutingPolicy, counts: Collection[TierCount]) -> tuple[Object, list[Change]]:
    """Return the revised policy, and its changes; without a change, the policy is the same.

    For each phase and rule, only the runs with its present tier count. The tier is raised by one step of the ladder if
    at least ``raise_at`` percent of them were sent back. It is lowered by one step if at most ``lower_at`` percent
    were, unless the lower tier would itself have to be raised. With fewer than ``runs`` runs it stays.
    """
    known = {(each.phase, each.rule, each.tier): each for each in counts}
    changes = [
        change
        for phase, rule, tier in list_rules(policy)
        if (change := _find_change(policy, phase, rule, tier, known)) is not None
    ]
    document: Any = deepcopy(dict(policy.document))
    for change in changes:
        _set_tier(document["phases"][change.phase], change)
    return document, changes


def list_rules(policy: RoutingPolicy) -> Iterator[tuple[str, str, str]]:
    """Yield phase, rule and tier of everything that a policy decides."""
    for phase, routing in policy.phases.items():
        yield phase, DEFAULT, routing.tier
        yield from ((phase, rule.id, rule.tier) for rule in routing.rules)


def _find_change(
    policy: RoutingPolicy, phase: str, rule: str, tier: str, counts: Mapping[tuple[str, str, str], TierCount]
) -> Change | None:
    count = counts.get((phase, rule, tier))
    verdict = count.judge(policy.revision) if count else TOO_FEW
    target = _step(policy.ladder, tier, {RAISE: 1, LOWER: -1}.get(verdict, 0))
    if count is None or target in (tier, None):
        return None
    below = counts.get((phase, rule, target)) if verdict == LOWER else None
    if below is not None and below.judge(policy.revision) == RAISE:
        return None
    return Change(phase=phase, rule=rule, from_tier=tier, to_tier=target, runs=count.runs, sent_back=count.sent_back)


def _step(ladder: Sequence[str], tier: str, step: int) -> str | None:
    """Return the tier *step* steps higher on the ladder; ``None`` beyond its ends."""
    position = ladder.index(tier) + step
    return ladder[position] if 0 <= position < len(ladder) else None


def _set_tier(phase: dict[str, Any], change: Change) -> None:
    if change.rule == DEFAULT:
        phase["tier"] = change.to_tier
        return
    for rule in phase["rules"]:
        if rule["id"] == change.rule:
            rule["tier"] = change.to_tier


def build_revision(pipeline: str, base: Object, before: RoutingPolicy, records: Sequence[TaskRecord]) -> dict[str, Any]:
    """Return the payload of ``swe.routing_revised`` for the tasks *records*; ``changes`` may be empty."""
    counts = count_tiers(records)
    policy, changes = revise(before, counts)
    return {
        "pipeline": pipeline,
        "base_digest": digest_policy(base),
        "from_digest": before.digest,
        "to_digest": digest_policy(policy),
        "before": dict(before.document),
        "policy": dict(policy),
        "changes": [each.as_json() for each in changes],
        "counts": [each.as_json() for each in counts],
        "evidence": [
            {"session": each.session, "task_id": each.task_id, "generated": each.generated} for each in records
        ],
        "generated": sum(each.generated for each in records),
    }


def check_revision(payload: Object, records: Iterable[TaskRecord]) -> Iterator[str]:
    """Yield what is wrong with a recorded revision, computed again from the *records* of all tasks."""
    try:
        before = RoutingPolicy.parse(payload["before"])
        wanted = {(each["session"], each["task_id"]) for each in payload["evidence"]}
        found = [each for each in records if (each.session, each.task_id) in wanted]
        again = build_revision(payload["pipeline"], {}, before, found)
    except (KeyError, TypeError, ValueError) as problem:
        yield f"it cannot be read: {problem!r}"
        return
    if missing := len(wanted) - len(found):
        yield f"{missing} of the tasks that it names are not recorded"
        return
    for name in ("from_digest", "counts", "changes", "policy", "to_digest", "generated"):
        if again[name] != payload[name]:
            yield f"its {name} do not follow from its evidence"
    if len(wanted) < before.revision.tasks:
        yield f"it names {len(wanted)} tasks, and its policy asks for {before.revision.tasks}"
