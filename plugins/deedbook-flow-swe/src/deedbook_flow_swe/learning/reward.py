"""The reward of a task: eight dimensions and a composite, from facts that tools and the door verified; pure.

A dimension is 1 (good), 0 (acceptable), -1 (bad), or ``None`` if nothing verified it. What a model says about its own
work has no influence. The formulas are written down in docs/rewards.md.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from deedbook_flow_swe.task_record import Block, PhaseRun, TaskRecord

from .evidence import Mention
from .routing import FALLBACK

VERSION: Final = "v1"
VERIFICATION: Final = "verification"
SECURITY: Final = "security"
INTEGRATION: Final = "integration"

ARCHITECTURE_RULES: Final = ("architecture", "adr", "interface", "dependency", "drift")
"""What the ids of rules and findings about architecture begin with."""
CRITERIA_RULES: Final = ("criteria", "criterion", "acceptance", "spec")
"""What the ids of rules and findings about acceptance criteria begin with."""
MAJORITY: Final = 5
"""The dimensions that must be 1 for a composite of 1, and known for any composite: more than half of the eight."""

Score = int | None


def compute_reward(record: TaskRecord, timestamp: str, mentions: Iterable[Mention] = ()) -> dict[str, Any]:
    """Return the reward (``reward_v1``) of a task, as far as *record* goes.

    *mentions* are the patterns that the retrospective names; they have no influence on the scores.
    """
    decomposition = {name: score(record) for name, score in DIMENSIONS.items()}
    return {
        "schema_version": VERSION,
        "task_id": record.task_id,
        "timestamp": timestamp,
        "composite_score": compute_composite(decomposition, failed=record.state == "failed"),
        "reward_decomposition": decomposition,
        "phase_health": {phase: _describe_health(record, phase, runs) for phase, runs in record.phases.items()},
        "failure_attribution": _attribute_failure(record),
        "context_tags": list(record.tags),
        "model_tiers_used": {phase: tiers for phase, runs in record.phases.items() if (tiers := _list_tiers(runs))},
        "phases_rolled_back": list(dict.fromkeys(run.phase for run in record.runs if run.was_rolled_back)),
        "rollback_count": len([each for each in record.rollbacks if not each.cascade]),
        "tool_verified": decomposition["correctness"] is not None,
        "integration_verified": decomposition["rollback_stability"] is not None and decomposition["correctness"] == 1,
        "failure_verified": any(block.is_verified for block in _find_costly_blocks(record)),
        "generated": record.generated,
        "patterns": [each.as_json() for each in mentions],
    }


def compute_composite(decomposition: Mapping[str, Score], *, failed: bool = False) -> Score:
    """Return the composite of eight dimensions.

    It is unknown without correctness, or if fewer than `MAJORITY` dimensions are known. It is -1 if the task failed, if
    correctness or rollback stability is -1, or if -1 is not rarer than 1. It is 1 if at least `MAJORITY` dimensions are
    1 and none is -1. Otherwise it is 0.
    """
    known = [score for score in decomposition.values() if score is not None]
    if decomposition["correctness"] is None or len(known) < MAJORITY:
        return None
    good, bad = known.count(1), known.count(-1)
    broken = failed or -1 in (decomposition["correctness"], decomposition["rollback_stability"])
    if broken or (bad and bad >= good):
        return -1
    return int(good >= MAJORITY and not bad)


# --- dimensions -------------------------------------------------------------------------------------------------------


def score_correctness(record: TaskRecord) -> Score:
    """Score the tests that ran last: one that failed is -1; 1 needs a passed test and every criterion verified."""
    results = [value for _, value in record.list_reported("tests")]
    passed, failed = (sum(each.get(name, 0) for each in results) for name in ("passed", "failed"))
    if not passed + failed:
        return None
    if failed:
        return -1
    asked, verified = _read_criteria(record)
    return int(bool(asked) and asked <= verified)


def score_spec_fidelity(record: TaskRecord) -> Score:
    """Score how many criteria tools verified: all without a detour is 1, all in the end is 0, otherwise -1."""
    asked, verified = _read_criteria(record)
    if not asked or not record.list_reported("criteria_verified"):
        return None
    if not asked <= verified:
        return -1
    return int(not any(is_about(block.rule, CRITERIA_RULES) for block in _list_later_blocks(record)))


def score_architectural_compliance(record: TaskRecord) -> Score:
    """Score violations of the architecture that tools found: one left is -1, one that was mended is 0."""
    reports = [value for _, value in record.list_reported("architecture")]
    if any(each["violations"] for each in reports) or _has_open_finding(record, ARCHITECTURE_RULES):
        return -1
    blocks = [block for block in record.blocks if block.is_verified and is_about(block.rule, ARCHITECTURE_RULES)]
    if not sum(each["checked"] for each in reports):
        return 0 if blocks else None
    return int(not blocks)


def score_verification_cleanliness(record: TaskRecord) -> Score:
    """Score how often verification or security sent the task back: never is 1, once is 0, more often is -1."""
    reports = {name for phase in (VERIFICATION, SECURITY) for name in record.facts(phase)}
    if not reports & {"tests", "lint", "coverage", "secrets"}:
        return None
    lint = record.facts(VERIFICATION).get("lint", 0)
    return _grade(len(record.sent_back_by(VERIFICATION, SECURITY)), at_most=0 if lint else 1)


def score_phase_discipline(record: TaskRecord) -> Score:
    """Score how often the door refused what a contract does not allow: never is 1, once is 0, more often is -1."""
    violations = sum(run.violations for run in record.runs)
    if not violations and not any(run.contexts for run in record.runs):
        return None
    return _grade(violations)


def score_context_efficiency(record: TaskRecord) -> Score:
    """Score prompts over their budget, and tiers that no rule asked for: none is 1, one is 0, more are -1."""
    counted = any(each.counted == "provider" for run in record.runs for each in run.contexts)
    if not (counted or record.list_reported("tokens")) or not any(run.models for run in record.runs):
        return None
    over = sum(each.tokens > each.budget for run in record.runs for each in run.contexts)
    return _grade(over + sum(each.rule.startswith(FALLBACK) for run in record.runs for each in run.models))


def score_rollback_stability(record: TaskRecord) -> Score:
    """Score the regression tests of integration: a failed one is -1, a task that came back from there is 0."""
    regressions = record.facts(INTEGRATION).get("regressions")
    if regressions is None:
        return None
    return -1 if regressions else int(not record.sent_back_by(INTEGRATION))


def score_maintainability(record: TaskRecord) -> Score:
    """Score the change of coverage: lower is -1, unchanged is 0, higher is 1, and 0 with findings of the linter."""
    deltas = [value for _, value in record.list_reported("coverage_delta")]
    if not deltas:
        return None
    worst = min(deltas)
    if worst < 0:
        return -1
    return int(worst > 0 and not any(value for _, value in record.list_reported("lint")))


DIMENSIONS: Final[Mapping[str, Callable[[TaskRecord], Score]]] = MappingProxyType(
    {
        "correctness": score_correctness,
        "spec_fidelity": score_spec_fidelity,
        "architectural_compliance": score_architectural_compliance,
        "verification_cleanliness": score_verification_cleanliness,
        "phase_discipline": score_phase_discipline,
        "context_efficiency": score_context_efficiency,
        "rollback_stability": score_rollback_stability,
        "maintainability": score_maintainability,
    }
)
"""The dimensions, each with its formula."""


def _grade(count: int, at_most: int = 1) -> int:
    """Return 1 for none, 0 for one, and -1 for more, but no more than *at_most*."""
    return min(at_most, max(-1, 1 - count))


def _read_criteria(record: TaskRecord) -> tuple[set[str], set[str]]:
    """Return the ids of all acceptance criteria, and of those that tools verified."""
    asked = {each for _, value in record.list_reported("criteria") for each in value}
    return asked, {each for _, value in record.list_reported("criteria_verified") for each in value}


def is_about(rule: str | None, subjects: Collection[str]) -> bool:
    """Return whether the id of a rule begins with one of the words *subjects*."""
    words = (rule or "").replace("/", "-").replace("_", "-").replace(".", "-").split("-")
    return words[0] in subjects


def _has_open_finding(record: TaskRecord, subjects: Collection[str]) -> bool:
    return any(is_about(each["rule"], subjects) for _, value in record.list_reported("findings") for each in value)


def _list_later_blocks(record: TaskRecord) -> Iterator[Block]:
    """Yield what rules found in the phases that check others' outputs."""
    for block in record.blocks:
        if block.is_verified and block.phase in (VERIFICATION, SECURITY, INTEGRATION):
            yield block


# --- health and attribution -------------------------------------------------------------------------------------------


def _describe_health(record: TaskRecord, phase: str, runs: list[PhaseRun]) -> dict[str, Any]:
    back = any(run.was_rolled_back for run in runs)
    if not runs[-1].completed:
        outcome = "incomplete"
    elif back:
        outcome = "rollback"
    elif phase in record.escalations:
        outcome = "escalated"
    else:
        outcome = "blocked" if any(run.blocks for run in runs) else "clean"
    cause = _find_cause(record, phase)
    return {"iterations": len(runs), "outcome": outcome, **({"cause": cause} if cause and outcome != "clean" else {})}


def _find_cause(record: TaskRecord, phase: str) -> str | None:
    """Return the issue for which a phase was rolled back or blocked most recently."""
    moves = [each.issue for each in record.rollbacks if each.to_phase == phase]
    blocks = [each.issue for each in record.blocks if each.phase == phase]
    return next(reversed(moves or blocks), None)


def _attribute_failure(record: TaskRecord) -> dict[str, Any] | None:
    """Return the phase whose outputs were sent back most often, the first one if several were; ``None`` if none was."""
    counts = {phase: sum(run.was_rolled_back for run in runs) for phase, runs in record.phases.items()}
    phase = max(counts, key=lambda each: counts[each], default="")
    if not counts.get(phase):
        return None
    runs = record.phases[phase]
    move = [each for each in record.rollbacks if each.to_phase == phase][-1]
    passed = f"run {runs[-1].iteration} of {phase} passed its gate" if runs[-1].completed else None
    return {
        "phase": phase,
        "agent": runs[-1].agent,
        "cause": move.reason,
        "issue": move.issue,
        "resolution": passed if not runs[-1].was_rolled_back else None,
    }


def _find_costly_blocks(record: TaskRecord) -> list[Block]:
    """Return the blocks for which the task was sent back or a person was asked."""
    issues = {each.issue for each in record.rollbacks}
    return [block for block in record.blocks if block.issue in issues or block.phase in record.escalations]


def _list_tiers(runs: list[PhaseRun]) -> str | list[str]:
    """Return the tier of a phase, or all its tiers in the order of their first use."""
    tiers = list(dict.fromkeys(choice.tier for run in runs for choice in run.models))
    return tiers[0] if len(tiers) == 1 else tiers
