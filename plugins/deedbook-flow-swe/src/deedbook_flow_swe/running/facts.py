"""The facts of a phase: what its commands have reported; pure. Nothing that a model says becomes a fact.

A command that reads ``json`` may verify the architecture: its result has ``architecture: {checked, violations}``.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from deedbook import Object
from deedbook_flow_swe.contract import EACH_UNIT, Contract

_TESTS: Final = ("pytest", "coverage", "json")
_ARCHITECTURE: Final = "architecture"
_FINDINGS: Final[Mapping[str, str]] = MappingProxyType({"ruff": "lint", "secrets": "secrets"})


def collect_facts(contract: Contract, checks: Mapping[str, Any], criteria: Sequence[Object] = ()) -> dict[str, Any]:
    """Return the facts (`events.FACTS`) in the results of the commands of *contract*; *criteria* are the task's."""
    facts: dict[str, Any] = {}
    for rule in contract.commands:
        found = checks.get(rule.check)
        rows = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
        if rule.command is None or not rows:
            continue
        if rule.command.reads in _FINDINGS:
            _add_findings(facts, _FINDINGS[rule.command.reads], rows)
        elif rule.command.reads == "regression":
            _add_regressions(facts, rows)
        elif rule.command.reads in _TESTS:
            _add_tests(facts, rows, by_unit=rule.command.each == EACH_UNIT)
        if rule.command.reads == "json":
            _add_architecture(facts, rows)
    if "criteria_verified" in facts and criteria:
        facts["criteria"] = sorted(str(each["id"]) for each in criteria)
    return facts


def _add_tests(facts: dict[str, Any], rows: Sequence[Mapping[str, Any]], *, by_unit: bool) -> None:
    """Add counts, coverage and verified criteria. All tests together count rather than those of the units."""
    counted = [each for each in rows if _is_count(each.get("passed")) and _is_count(each.get("failed"))]
    if counted and not (by_unit and "tests" in facts):
        facts["tests"] = {name: sum(each[name] for each in counted) for name in ("passed", "failed")}
    covered = [each["coverage"] for each in rows if isinstance(each.get("coverage"), int | float)]
    if covered:
        facts["coverage"] = min([*covered, *([facts["coverage"]] if "coverage" in facts else [])])
    stated = [each["acceptance_criteria_verified"] for each in rows if "acceptance_criteria_verified" in each]
    if stated:
        named = {str(name) for names in stated for name in names}
        facts["criteria_verified"] = sorted({*facts.get("criteria_verified", ()), *named})


def _add_findings(facts: dict[str, Any], name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    found = [each for row in rows for each in row.get("findings", ()) if isinstance(each, dict)]
    facts[name] = facts.get(name, 0) + len(found)
    if found:
        facts["findings"] = [*facts.get("findings", ()), *map(_describe_finding, found)]


def _add_regressions(facts: dict[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    facts["regressions"] = sum(len(row.get("regressions", ())) + len(row.get("missing", ())) for row in rows)
    deltas = [row["coverage_delta"] for row in rows if isinstance(row.get("coverage_delta"), int | float)]
    if deltas:
        facts["coverage_delta"] = min(deltas)


def _add_architecture(facts: dict[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Add how many rules of the architecture a tool checked, and how many violations it found."""
    found = [each for row in rows if isinstance(each := row.get(_ARCHITECTURE), dict)]
    for each in found:
        if all(_is_count(each.get(name)) for name in ("checked", "violations")):
            known = facts.get(_ARCHITECTURE, {"checked": 0, "violations": 0})
            facts[_ARCHITECTURE] = {name: known[name] + each[name] for name in known}


def _describe_finding(row: Mapping[str, Any]) -> dict[str, str]:
    line = row.get("line")
    place = str(row.get("place") or row.get("path") or "")
    return {
        "severity": str(row.get("severity") or "MINOR"),
        "rule": str(row.get("rule") or "unknown"),
        "place": f"{place}:{line}" if place and line and "place" not in row else place,
    }


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
