"""Results of pytest: of a unit or a task (``unit_tests_v1``), and before and after a change; pure."""

from collections.abc import Mapping
from typing import Any, Final

from .coverage import read_coverage
from .junit import ERROR, FAILED, PASSED, SKIPPED, SuiteReport, read_junit
from .subject import VERSION, ReportRefused, ReportSubject, read_output, read_status

RUNNER: Final = "pytest"
_NONE_RAN: Final = (3, 4, 5)
"""The exit statuses of pytest without any test: it failed itself, its arguments were wrong, it found none."""


def parse_tests(result: Any, subject: ReportSubject, *, measured: bool = False) -> dict[str, Any]:
    """Return the outcome of the tests in a result of the sandbox; with *measured*, it must have a report of coverage.

    A criterion is verified if the test that it names ran and passed.
    """
    status, report = _read_suite(result)
    covered = _read_coverage(result, subject, needed=measured)
    threshold = _threshold(subject)
    return {
        "schema_version": VERSION,
        "task_id": subject.task,
        "unit_id": subject.unit_id,
        "runner": RUNNER,
        "exit_code": status,
        **_counts(report),
        "skipped": report.count(SKIPPED),
        "tests": report.as_json(),
        "coverage": covered,
        "threshold_met": None if covered is None or threshold is None else covered >= threshold,
        "acceptance_criteria_verified": sorted(
            {str(each["id"]) for each in subject.own_criteria() if report.passed(str(each.get("test", "")))}
        ),
    }


def parse_regression(result: Any, subject: ReportSubject) -> dict[str, Any]:
    """Return what changed between two results, ``{before, after}``: each is one of the sandbox, of all tests.

    A test that passed before must pass after: otherwise it is a regression, or missing.
    """
    if not isinstance(result, Mapping) or not {"before", "after"} <= result.keys():
        raise ReportRefused("this is no result of two runs: it needs before and after")
    (_, before), (status, after) = _read_suite(result["before"]), _read_suite(result["after"])
    good = [name for name, outcome in before.tests.items() if outcome == PASSED]
    covered_before, covered_after = _total(result["before"]), _total(result["after"])
    return {
        "schema_version": VERSION,
        "task_id": subject.task,
        "runner": RUNNER,
        "exit_code": status,
        "before": _counts(before),
        "after": _counts(after),
        "regressions": sorted(name for name in good if after.tests.get(name, PASSED) != PASSED),
        "missing": sorted(name for name in good if name not in after.tests),
        "added": sorted(name for name in after.tests if name not in before.tests),
        "coverage_delta": None
        if covered_before is None or covered_after is None
        else round(covered_after - covered_before, 2),
    }


def _total(result: Any) -> float | None:
    """Return the coverage of all files, if it was measured."""
    text = _coverage_text(result)
    return None if text is None else read_coverage(text, None)


def _read_suite(result: Any) -> tuple[int, SuiteReport]:
    status = read_status(result)
    text = read_output(result, ".xml")
    if text is None:
        if status in _NONE_RAN:
            return status, SuiteReport({})
        raise ReportRefused(f"pytest ended with status {status} and left no report")
    return status, read_junit(text, status)


def _counts(report: SuiteReport) -> dict[str, int]:
    return {"passed": report.count(PASSED), "failed": report.count(FAILED, ERROR)}


def _coverage_text(result: Any) -> str | None:
    return read_output(result, ".json")


def _read_coverage(result: Any, subject: ReportSubject, *, needed: bool) -> float | None:
    text = _coverage_text(result)
    if text is None:
        if needed and read_status(result) == 0:
            raise ReportRefused("the tests passed, and there is no report of coverage")
        return None
    unit = subject.unit
    tests = () if unit is None else unit.get("verification", {}).get("tests", ())
    return read_coverage(text, None if unit is None else unit.get("files"), tests)


def _threshold(subject: ReportSubject) -> float | None:
    found = None if subject.unit is None else subject.unit.get("verification", {}).get("coverage_threshold")
    return None if found is None else float(found)
