"""The metrics of a pipeline: how reliably its phases pass on good outputs, as folds over records of tasks; pure.

Each metric is a function of records. A rate without any case is ``None``, not 0. docs/rewards.md describes them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from deedbook import Object
from deedbook.format import canonical
from deedbook_flow_swe.task_record import PhaseRun, TaskRecord

from .reward import ARCHITECTURE_RULES, CRITERIA_RULES, SECURITY, VERIFICATION, is_about

VERSION: Final = "v1"
PATH: Final = "metrics/pipeline.jsonl"
"""The file in the data folder that gets a line after each phase."""
TREND: Final = 50
"""The number of tasks whose composites make the trend."""
BLOCKS: Final = "▁▂▃▄▅▆▇█"
GAP: Final = "·"
"""What a sparkline shows where nothing was measured."""

Records = Sequence[TaskRecord]


def compute_metrics(records: Records) -> dict[str, Any]:
    """Return all metrics of *records*, in the order of `METRICS`."""
    return {name: compute(records) for name, compute in METRICS.items()}


# --- the metrics ------------------------------------------------------------------------------------------------------


def phase_rollback_rate(records: Records) -> dict[str, float]:
    """Return for each phase the share of its runs whose outputs were sent back."""
    return {phase: _mean(run.was_rolled_back for run in runs) for phase, runs in _by_phase(records).items()}


def iterations_per_phase(records: Records) -> dict[str, dict[str, int]]:
    """Return for each phase how many tasks needed how many runs."""
    found: dict[str, Counter[int]] = {}
    for record in records:
        for phase, runs in record.phases.items():
            found.setdefault(phase, Counter())[len(runs)] += 1
    return {phase: {str(number): counts[number] for number in sorted(counts)} for phase, counts in found.items()}


def rollback_cascade_rate(records: Records) -> float | None:
    """Return the share of moves back that went on through a phase that could not mend the issue."""
    moves = [move for record in records for move in record.rollbacks]
    return _rate(sum(move.cascade for move in moves), sum(not move.cascade for move in moves))


def human_escalation_rate(records: Records) -> float | None:
    """Return the share of tasks for which a person was asked."""
    return _rate(sum(bool(record.escalations) for record in records), len(records))


def spec_ambiguity_rate(records: Records) -> float | None:
    """Return the share of tasks whose first phase was blocked because something was missing."""
    begun = [record for record in records if record.runs]
    return _rate(sum(_is_ambiguous(record) for record in begun), len(begun))


def architecture_violation_rate(records: Records) -> float | None:
    """Return the share of verified tasks in which tools found that the change diverges from spec or architecture."""
    reached = [record for record in records if VERIFICATION in record.phases]
    return _rate(sum(_diverges(record) for record in reached), len(reached))


def security_finding_rate(records: Records) -> dict[str, float]:
    """Return for each severity the findings of a task that reached the security phase."""
    reached = [record for record in records if SECURITY in record.phases]
    counts = Counter(severity for record in reached for severity in _severities(record))
    return {severity: round(count / len(reached), 4) for severity, count in sorted(counts.items())}


def pattern_promotion_rate(records: Records) -> float | None:
    """Return how many patterns were promoted for each task that ended."""
    ended = [record for record in records if record.ended is not None]
    return _rate(sum(len(record.promoted) for record in ended), len(ended))


def context_tokens_per_phase(records: Records) -> dict[str, float]:
    """Return for each phase the mean size of its prompts, in tokens."""
    sizes = {
        phase: [context.tokens for run in runs for context in run.contexts]
        for phase, runs in _by_phase(records).items()
    }
    return {phase: round(sum(each) / len(each), 1) for phase, each in sizes.items() if each}


def model_tier_distribution(records: Records) -> dict[str, dict[str, int]]:
    """Return for each phase how often each tier was chosen."""
    tiers = {
        phase: Counter(choice.tier for run in runs for choice in run.models)
        for phase, runs in _by_phase(records).items()
    }
    return {phase: dict(sorted(counts.items())) for phase, counts in tiers.items() if counts}


def composite_reward_trend(records: Records) -> dict[str, Any]:
    """Return the composites of the last `TREND` rewarded tasks, the newest last, and the mean of the known ones."""
    rewarded = sorted((record for record in records if record.reward is not None), key=lambda each: each.started)
    composites = [record.reward["composite_score"] for record in rewarded if record.reward is not None][-TREND:]
    known = [each for each in composites if each is not None]
    return {"composites": composites, "mean": _rate(sum(known), len(known))}


METRICS: Final[Mapping[str, Callable[[Records], Any]]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            phase_rollback_rate,
            iterations_per_phase,
            rollback_cascade_rate,
            human_escalation_rate,
            spec_ambiguity_rate,
            architecture_violation_rate,
            security_finding_rate,
            pattern_promotion_rate,
            context_tokens_per_phase,
            model_tier_distribution,
            composite_reward_trend,
        )
    }
)
"""The metrics by name."""


def _rate(count: float, cases: int) -> float | None:
    return round(count / cases, 4) if cases else None


def _mean(values: Iterable[bool]) -> float:
    found = list(values)
    return round(sum(found) / len(found), 4)


def _by_phase(records: Records) -> dict[str, list[PhaseRun]]:
    found: dict[str, list[PhaseRun]] = {}
    for record in records:
        for phase, runs in record.phases.items():
            found.setdefault(phase, []).extend(runs)
    return found


def _is_ambiguous(record: TaskRecord) -> bool:
    first = next(iter(record.phases))
    return any(block.phase == first and block.by in ("agent", "input") and block.missing for block in record.blocks)


def _diverges(record: TaskRecord) -> bool:
    subjects = (*ARCHITECTURE_RULES, *CRITERIA_RULES)
    rules = [block.rule for block in record.blocks if block.phase == VERIFICATION and block.is_verified]
    rules += [
        each["rule"] for run in record.runs for each in run.facts.get("findings", ()) if run.phase == VERIFICATION
    ]
    found = any(run.facts.get("architecture", {}).get("violations", 0) for run in record.runs)
    return found or any(is_about(rule, subjects) for rule in rules)


def _severities(record: TaskRecord) -> Iterator[str]:
    """Yield the severity of each finding of the security phase: those reported, and those that blocked it."""
    for run in record.phases[SECURITY]:
        yield from (str(each["severity"]) for each in run.facts.get("findings", ()))
        yield from (block.severity for block in run.blocks if block.severity is not None)


# --- lines ------------------------------------------------------------------------------------------------------------


def build_line(record: TaskRecord, phase: str, iteration: int, time: str) -> dict[str, Any]:
    """Return the line (``pipeline_metrics_v1``) after a run of a phase: the metrics of its task so far."""
    return {
        "schema_version": VERSION,
        "ts": time,
        "task_id": record.task_id,
        "generated": record.generated,
        "phase": phase,
        "iteration": iteration,
        "metrics": compute_metrics([record]),
    }


def render_line(line: Object) -> str:
    """Return the text of a line: canonical JSON and a newline."""
    return canonical.encode(dict(line)).decode() + "\n"


# --- trends -----------------------------------------------------------------------------------------------------------


def flatten(metrics: Object) -> dict[tuple[str, str], float | None]:
    """Return the numbers of metrics, each under the name of the metric and a phase, severity or tier."""
    found: dict[tuple[str, str], float | None] = {}
    for name, value in metrics.items():
        if name == composite_reward_trend.__name__:
            found[name, ""] = value["mean"]
        elif name == iterations_per_phase.__name__:
            found |= {(name, phase): _mean_runs(counts) for phase, counts in value.items()}
        elif name == model_tier_distribution.__name__:
            found |= {
                (name, f"{phase} {tier}"): count for phase, tiers in value.items() for tier, count in tiers.items()
            }
        elif isinstance(value, Mapping):
            found |= {(name, part): each for part, each in value.items()}
        else:
            found[name, ""] = value
    return found


def _mean_runs(counts: Mapping[str, int]) -> float:
    return round(sum(int(number) * tasks for number, tasks in counts.items()) / sum(counts.values()), 2)


def split_into(records: Records, most: int) -> list[Records]:
    """Return the records in at most *most* groups of equal size, in the order of their beginning."""
    ordered = sorted(records, key=lambda each: each.started)
    size = max(1, -(-len(ordered) // most))
    return [ordered[at : at + size] for at in range(0, len(ordered), size)]


def draw_sparkline(values: Sequence[float | None]) -> str:
    """Return a sparkline of *values*: the lowest and the highest block for the extremes, a dot where there is none."""
    known = [each for each in values if each is not None]
    if not known:
        return GAP * len(values)
    low, span = min(known), max(known) - min(known)
    return "".join(GAP if each is None else BLOCKS[_level(each - low, span)] for each in values)


def _level(height: float, span: float) -> int:
    return round(height / span * (len(BLOCKS) - 1)) if span else 0
