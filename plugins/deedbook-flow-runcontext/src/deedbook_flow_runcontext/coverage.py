"""Check that a worker's report covers a plan; pure."""

from collections.abc import Iterator
from typing import Final

from deedbook import Object

from .findings import Finding, quote_names
from .plans import upcast

COMPLETED: Final = "steps_completed"
SKIPPED: Final = "steps_skipped"
"""The member of a report that has the ids of optional steps that were not done."""
CHECKS: Final = ("steps_known", "steps_covered", "skips_allowed")
"""Every check, in the order of the findings."""


def check_coverage(plan: Object, report: Object) -> tuple[Finding, ...]:
    """Return what a report lacks; empty if it has each required step completed, and each optional one accounted for.

    *plan* fits ``plan_v2`` or ``plan_v1``, *report* ``worker_report_v1``. An optional step is completed or stands in
    ``steps_skipped``, a list of ids.
    """
    skipped = report.get(SKIPPED, [])
    if not isinstance(skipped, list) or not all(isinstance(each, str) for each in skipped):
        return (Finding("steps_known", f"{SKIPPED} is not a list of the ids of steps; correct the report"),)
    steps = {step["id"]: step.get("optional") is True for step in upcast(plan)["steps"]}
    return tuple(_compare(steps, dict.fromkeys(report[COMPLETED]), dict.fromkeys(skipped)))


def _compare(steps: dict[str, bool], completed: dict[str, None], skipped: dict[str, None]) -> Iterator[Finding]:
    unknown = [name for name in {**completed, **skipped} if name not in steps]
    if unknown:
        why = f"the report names {quote_names(unknown)}, which no step of the plan is called; use the ids of the plan"
        yield Finding("steps_known", why, tuple(unknown))
    lacking = [name for name, optional in steps.items() if not optional and name not in {**completed, **skipped}]
    if lacking:
        why = f"the report does not have {quote_names(lacking)} among {COMPLETED}; complete these steps"
        yield Finding("steps_covered", why, tuple(lacking))
    silent = [name for name, optional in steps.items() if optional and name not in {**completed, **skipped}]
    if silent:
        why = f"the report does not mention the optional steps {quote_names(silent)}; add them to {SKIPPED}"
        yield Finding("steps_covered", why, tuple(silent))
    required = [name for name in skipped if steps.get(name) is False]
    if required:
        why = f"the report skips {quote_names(required)}, which the plan requires; complete these steps"
        yield Finding("skips_allowed", why, tuple(required))
    both = [name for name in skipped if name in completed]
    if both:
        why = f"the report has {quote_names(both)} as completed and as skipped; keep one of the two"
        yield Finding("skips_allowed", why, tuple(both))
