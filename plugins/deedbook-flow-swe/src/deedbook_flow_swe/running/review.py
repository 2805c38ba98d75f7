"""Whether a person has to review a task after its security phase: the pipeline's policy decides."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from deedbook import Run
from deedbook_flow_swe.contract import TASK, Contract
from deedbook_flow_swe.definition import Definition

from .material import TaskMaterial
from .phase_run import PhaseOutcome
from .values import MalformedFile, read_value

CLEARED: Final = "CLEARED.md"
"""The gate of the phase after which a person may have to review."""
REVIEWED: Final = "review"
"""The subject about which the policy is asked, and the rule of the issue."""
PATTERNS: Final = "integration_patterns"
"""The list in an output that names the ways in which a task joins systems."""


def find_review(
    run: Run, definition: Definition, contract: Contract, material: TaskMaterial, outcome: PhaseOutcome
) -> str:
    """Return why a person has to review; empty if no review is needed."""
    if definition.human_triggers is None or contract.gate.passed != CLEARED:
        return ""
    value = describe_review(material, contract, outcome)
    patterns = frozenset(map(str, _all_rows(outcome, PATTERNS)))
    value["first_review"] = bool(patterns) and not patterns <= _read_reviewed(run, material, contract)
    decision = run.decide(definition.human_triggers, REVIEWED, value).decision
    if decision.outcome in ("allow", "advisory"):
        return ""
    return decision.reason or f"the policy {definition.human_triggers} wants a person to decide"


def describe_review(material: TaskMaterial, contract: Contract, outcome: PhaseOutcome) -> dict[str, Any]:
    """Return the value that the policy is asked about."""
    findings = _all_rows(outcome, "findings")
    touches = material.touches | set(map(str, _all_rows(outcome, "touches")))
    return {
        "task": material.id,
        "phase": contract.phase,
        "severities": sorted(
            {str(row["severity"]) for row in findings if isinstance(row, Mapping) and "severity" in row}
        ),
        "touches": sorted(touches),
        "new_services": sorted(set(map(str, _all_rows(outcome, "new_services")))),
        "schema_changes": "schema" in touches,
        "first_review": False,
    }


def find_classes(contract: Contract, values: Mapping[str, Any]) -> frozenset[str]:
    """Return the classes of the findings in the outputs *values* (by name), which rules of routing may name.

    A class is the first word of the schema of the output: findings in an ``owasp_checklist_v1`` are of class ``owasp``.
    """
    schemas = {each.name: each.schema or each.name for each in contract.outputs}
    found = set()
    for name, value in values.items():
        if any(_rows(each, "findings") for each in (value if isinstance(value, list) else [value])):
            found.add(schemas[name].partition("_")[0])
    return frozenset(found)


def find_reviewed(texts: Mapping[str, str]) -> frozenset[str]:
    """Return the ways of joining systems in the outputs *texts* (by path) of tasks that were cleared."""
    cleared = {path.rpartition("/")[0] for path in texts if path.rpartition("/")[2] == CLEARED}
    found: set[str] = set()
    for path, text in texts.items():
        if path.rpartition("/")[0] in cleared:
            with suppress(MalformedFile):
                found.update(map(str, _rows(read_value(path, text), PATTERNS)))
    return frozenset(found)


def _read_reviewed(run: Run, material: TaskMaterial, contract: Contract) -> frozenset[str]:
    """Return what `find_reviewed` says of all tasks; the present one has no gate file yet."""
    gate = next(path for path in contract.gate_paths if path.endswith(f"/{CLEARED}"))
    paths = [path.replace(f"{{{TASK}}}", "*") for path in (gate, *(each.path for each in contract.outputs))]
    found: Any = run.call(material.ability("read"), {"paths": [], "optional": paths})
    return find_reviewed({each["path"]: each["text"] for each in found["files"]})


def _all_rows(outcome: PhaseOutcome, key: str) -> list[Any]:
    """Return the entries of the lists under *key* in all outputs."""
    values = [each for value in outcome.values.values() for each in (value if isinstance(value, list) else [value])]
    return [row for each in values for row in _rows(each, key)]


def _rows(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, list) else []
