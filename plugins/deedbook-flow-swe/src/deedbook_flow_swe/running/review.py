"""Whether a person has to review a task after its security phase: the pipeline's policy decides."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Run
from deedbook_flow_swe.contract import Contract
from deedbook_flow_swe.definition import Definition

from .material import TaskMaterial
from .phase_run import PhaseOutcome

CLEARED: Final = "CLEARED.md"
"""The gate of the phase after which a person may have to review."""
REVIEWED: Final = "review"
"""The subject about which the policy is asked, and the rule of the issue."""


def find_review(
    run: Run, definition: Definition, contract: Contract, material: TaskMaterial, outcome: PhaseOutcome
) -> str:
    """Return why a person has to review; empty if nobody has to."""
    if definition.human_triggers is None or contract.gate.passed != CLEARED:
        return ""
    value = describe_review(material, contract, outcome)
    decision = run.decide(definition.human_triggers, REVIEWED, value).decision
    if decision.outcome in ("allow", "advisory"):
        return ""
    return decision.reason or f"the policy {definition.human_triggers} wants a person to decide"


def describe_review(material: TaskMaterial, contract: Contract, outcome: PhaseOutcome) -> dict[str, Any]:
    """Return the value that the policy is asked about."""
    values = [each for value in outcome.values.values() for each in (value if isinstance(value, list) else [value])]
    findings = [row for each in values if isinstance(each, dict) for row in _rows(each, "findings")]
    stated = [name for each in values if isinstance(each, dict) for name in _rows(each, "touches")]
    services = [name for each in values if isinstance(each, dict) for name in _rows(each, "new_services")]
    touches = {str(name) for unit in material.units for name in unit.get("touches", ())} | {
        str(each) for each in stated
    }
    return {
        "task": material.id,
        "phase": contract.phase,
        "severities": sorted(
            {str(row["severity"]) for row in findings if isinstance(row, Mapping) and "severity" in row}
        ),
        "touches": sorted(touches),
        "new_services": sorted({str(each) for each in services}),
        "schema_changes": "schema" in touches,
        "first_review": False,
    }


def _rows(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []
