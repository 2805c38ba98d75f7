"""JUnit XML as pytest writes it with ``junit_family=xunit1``; pure.

`defusedxml` reads it: a document type, an entity and an external reference are refused before they are used.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from .subject import ReportRefused

PASSED, FAILED, ERROR, SKIPPED = "passed", "failed", "error", "skipped"
MOST_TESTS: Final = 100_000
"""The most tests in one report."""
_LONGEST: Final = 500
_WORST: Final = (PASSED, SKIPPED, FAILED, ERROR)
_TAGS: Final = {"failure": FAILED, "error": ERROR, "skipped": SKIPPED}


@attrs.frozen
class SuiteReport:
    """The outcome of each test by its id (``path::name``), in the order in which they ran."""

    tests: dict[str, str]

    def count(self, *outcomes: str) -> int:
        """Return how many tests ended so."""
        return sum(each in outcomes for each in self.tests.values())

    def passed(self, test: str) -> bool:
        """Return whether *test* ran and passed, with all its parameters."""
        found = [outcome for name, outcome in self.tests.items() if name == test or name.startswith(f"{test}[")]
        return bool(found) and set(found) == {PASSED}

    def as_json(self) -> list[dict[str, str]]:
        """Return the tests as JSON."""
        return [{"id": name, "outcome": outcome} for name, outcome in self.tests.items()]


def read_junit(text: str, status: int) -> SuiteReport:
    """Return what a report says; raises `ReportRefused` if it is broken, or contradicts the exit status of pytest."""
    try:
        root = fromstring(text, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError) as problem:
        raise ReportRefused(f"the report of the tests is no plain XML: {str(problem)[:200]}") from None
    suites = [root] if root.tag == "testsuite" else list(root) if root.tag == "testsuites" else []
    if not suites or any(suite.tag != "testsuite" for suite in suites):
        raise ReportRefused("the report of the tests is no JUnit XML: it has no testsuite")
    report = SuiteReport(_collect(suites))
    if status == 0:
        _check_success(suites, report)
    return report


def _collect(suites: Sequence[Any]) -> dict[str, str]:
    tests: dict[str, str] = {}
    for suite in suites:
        for case in suite.iter("testcase"):
            name = _name_of(case)
            outcomes = [tests.get(name, PASSED), *(_TAGS[child.tag] for child in case if child.tag in _TAGS)]
            tests[name] = max(outcomes, key=_WORST.index)
            if len(tests) > MOST_TESTS:
                raise ReportRefused(f"the report has more than {MOST_TESTS} tests")
    return tests


def _name_of(case: Any) -> str:
    """Return the id of a test: its file, its classes and its name."""
    file, owner, name = case.get("file") or "", case.get("classname") or "", case.get("name") or ""
    module = file.removesuffix(".py").replace("/", ".")
    classes = owner.removeprefix(module).strip(".").split(".") if owner.startswith(module) and owner != module else []
    found = "::".join([file or owner, *filter(None, classes), name])
    if not name or not found.strip(":") or len(found) > _LONGEST:
        raise ReportRefused(f"the report has a test without a name, or one of more than {_LONGEST} letters")
    return found


def _check_success(suites: Sequence[Any], report: SuiteReport) -> None:
    """Refuse a report that does not fit a run in which all went well."""
    bad = report.count(FAILED, ERROR)
    if bad:
        raise ReportRefused(f"the report names {bad} failures, and the exit status is 0")
    for counted, name in zip(_totals(suites), ("tests", "failures", "errors"), strict=True):
        expected = sum(1 for suite in suites for _ in suite.iter("testcase")) if name == "tests" else 0
        if counted != expected:
            raise ReportRefused(f"the report says {name}={counted}, and lists {expected}")
    if not report.count(PASSED, SKIPPED):
        raise ReportRefused("the report names no test, and the exit status is 0")


def _totals(suites: Sequence[Any]) -> Iterator[int]:
    for name in ("tests", "failures", "errors"):
        try:
            yield sum(int(suite.get(name, "")) for suite in suites)
        except ValueError:
            raise ReportRefused(f"the report does not say how many {name} there were") from None
