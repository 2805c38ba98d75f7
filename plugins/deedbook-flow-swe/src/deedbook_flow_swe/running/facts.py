"""The facts of a phase: what its commands have reported; pure. Nothing that a model says becomes a fact."""

from collections.abc import Iterable, Mapping
from typing import Any

from deedbook_flow_swe.contract import Contract


def collect_facts(contract: Contract, checks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts (`events.FACTS`) in the results of the commands of *contract*."""
    facts: dict[str, Any] = {}
    for rule in contract.commands:
        if rule.command is None or rule.check not in checks:
            continue
        results = checks[rule.check]
        rows = [each for each in (results if isinstance(results, list) else [results]) if isinstance(each, dict)]
        _add(facts, rule.command.reads, rows)
    return facts


def _add(facts: dict[str, Any], reads: str, rows: list[dict[str, Any]]) -> None:
    if reads in ("pytest", "coverage", "json"):
        _add_tests(facts, rows)
    if reads == "ruff":
        facts["lint"] = facts.get("lint", 0) + sum(len(each.get("findings", ())) for each in rows)
    if reads == "secrets":
        facts["secrets"] = facts.get("secrets", 0) + sum(len(each.get("findings", ())) for each in rows)
    if reads in ("ruff", "secrets"):
        found = [_finding(each) for row in rows for each in row.get("findings", ())]
        if found:
            facts["findings"] = [*facts.get("findings", ()), *found]
    for row in rows:
        if isinstance(row.get("regressions"), list):
            facts["regressions"] = facts.get("regressions", 0) + len(row["regressions"])
        if isinstance(row.get("coverage_delta"), int | float):
            facts["coverage_delta"] = row["coverage_delta"]


def _add_tests(facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    counted = [each for each in rows if _is_count(each.get("passed")) and _is_count(each.get("failed"))]
    if counted:
        before = facts.get("tests", {"passed": 0, "failed": 0})
        facts["tests"] = {
            key: max(before[key], sum(each[key] for each in counted)) for key in ("passed", "failed")
        }
    covered = [each["coverage"] for each in rows if isinstance(each.get("coverage"), int | float)]
    if covered:
        facts["coverage"] = min(covered)
    verified = sorted({str(name) for each in rows for name in _names(each.get("acceptance_criteria_verified"))})
    if verified:
        facts["criteria_verified"] = sorted({*facts.get("criteria_verified", ()), *verified})


def _names(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _finding(row: Any) -> dict[str, str]:
    found = row if isinstance(row, dict) else {}
    return {
        "severity": str(found.get("severity") or "MINOR"),
        "rule": str(found.get("rule") or found.get("code") or "unknown"),
        "place": str(found.get("place") or found.get("path") or ""),
    }

