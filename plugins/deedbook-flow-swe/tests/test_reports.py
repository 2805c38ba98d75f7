"""Reports of programs that a hostile change may have written."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbook_flow_swe.tools.reports import PARSERS, ReportRefused, ReportSubject, parse_report

TASK = ReportSubject(task="t-1")
CASE = '<testcase classname="tests.test_x" name="test_a" file="tests/test_x.py" line="1" time="0.1"/>'
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


def renamed(name, inside=""):
    return CASE.replace("test_a", name).replace("/>", f">{inside}</testcase>")


def suite(*cases, tests=None, failures=0, errors=0):
    counts = f'tests="{len(cases) if tests is None else tests}" failures="{failures}" errors="{errors}" skipped="0"'
    return f"<testsuites><testsuite name='pytest' {counts}>{''.join(cases)}</testsuite></testsuites>"


def ran(status, xml=None, coverage=None):
    outputs = {".deedbook-report.xml": xml, ".deedbook-coverage.json": coverage}
    return {
        "status": status,
        "stdout": "",
        "outputs": {name: text for name, text in outputs.items() if text is not None},
    }


def covered(**files):
    summaries = {name: {"summary": {"num_statements": n, "covered_lines": k}} for name, (n, k) in files.items()}
    return json.dumps({"files": summaries})


def refusal(reads, result, subject=TASK):
    with pytest.raises(ReportRefused) as caught:
        parse_report(reads, result, subject)
    return str(caught.value)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (ran(0), "left no report"),
        (ran(1), "left no report"),
        (ran(0, suite()), "no test"),
        (ran(0, "1 passed"), "no plain XML"),
        (ran(0, suite(CASE)[:-20]), "no plain XML"),
        (ran(0, BOMB + suite(CASE)), "no plain XML"),
        (ran(0, '<!DOCTYPE x SYSTEM "file:///etc/passwd">' + suite(CASE)), "no plain XML"),
        (ran(0, "<html/>"), "no JUnit"),
        (ran(0, suite(CASE, tests=2)), "tests=2"),
        (ran(0, suite(CASE, failures=1)), "failures=1"),
        (ran(0, suite(CASE.replace("/>", "><failure>no</failure></testcase>"), failures=1)), "exit status is 0"),
        (ran(0, suite(CASE).replace('tests="1"', "")), "how many tests"),
        (ran(0, suite(CASE.replace('name="test_a"', ""))), "without a name"),
        (ran(0, suite(CASE.replace("test_a", "a" * 600))), "more than 500"),
        (ran(-9, suite(CASE)), "no exit status"),
        (ran(True, suite(CASE)), "no exit status"),
        ("all is well", "no exit status"),
    ],
    ids=lambda each: each if isinstance(each, str) and len(each) < 30 else "",
)
def test_report_that_lies_about_success_is_refused(result, why):
    assert why in refusal("pytest", result)


@pytest.mark.parametrize("status", [1, 2, 3, 4, 5])
def test_report_of_a_failure_keeps_the_exit_status(status):
    report = parse_report("pytest", ran(status, suite(CASE)), TASK)
    assert (report["exit_code"], report["passed"]) == (status, 1)


@pytest.mark.parametrize("status", [4, 5])
def test_run_without_tests_has_no_passed_one(status):
    report = parse_report("pytest", ran(status), TASK)
    assert (report["exit_code"], report["passed"], report["tests"]) == (status, 0, [])


@pytest.mark.parametrize(
    ("cases", "verified"),
    [
        ((CASE,), True),
        ((), False),
        ((CASE.replace("test_a", "test_ab"),), False),
        ((CASE.replace("test_a", "test_a[1]"), CASE.replace("test_a", "test_a[2]")), True),
        ((renamed("test_a[1]"), renamed("test_a[2]", "<failure/>")), False),
        ((CASE, CASE.replace("/>", "><error/></testcase>")), False),
        ((CASE.replace("/>", "><skipped/></testcase>"),), False),
        ((CASE.replace("/test_x.py", "/other.py"),), False),
        ((CASE.replace("/>", "><system-out>test_a PASSED</system-out></testcase>"),), True),
    ],
)  # fmt: skip
def test_criterion_is_verified_if_its_test_ran_and_passed(cases, verified):
    subject = ReportSubject(task="t-1", criteria=[{"id": "AC-001", "test": "tests/test_x.py::test_a"}])
    report = parse_report("pytest", ran(1, suite(*cases)), subject)
    assert report["acceptance_criteria_verified"] == (["AC-001"] if verified else [])


def test_criteria_of_other_units_are_not_those_of_a_unit():
    criteria = [
        {"id": "AC-001", "test": "tests/test_x.py::test_a"},
        {"id": "AC-002", "test": "tests/test_x.py::test_a"},
    ]
    subject = ReportSubject(task="t-1", unit={"id": "unit-001", "criteria": ["AC-002"]}, criteria=criteria)
    assert parse_report("pytest", ran(0, suite(CASE)), subject)["acceptance_criteria_verified"] == ["AC-002"]


def test_coverage_is_that_of_the_files_of_the_unit_without_its_tests():
    text = covered(**{"shop/a.py": (10, 9), "shop/b.py": (10, 0), "other.py": (100, 0), "shop/test_a.py": (10, 10)})
    unit = {
        "id": "unit-001",
        "files": ["shop/**"],
        "verification": {"tests": ["shop/test_a.py"], "coverage_threshold": 45},
    }
    report = parse_report("coverage", ran(0, suite(CASE), text), ReportSubject(task="t-1", unit=unit))
    assert (report["coverage"], report["threshold_met"]) == (45.0, True)
    unit = {**unit, "files": ["docs/**"]}
    report = parse_report("coverage", ran(0, suite(CASE), text), ReportSubject(task="t-1", unit=unit))
    assert (report["coverage"], report["threshold_met"]) == (None, None)


@pytest.mark.parametrize(
    "text",
    [None, "", "[]", "{}", '{"files": {"a": {}}}', covered(a=(1, 2)), covered(a=(-1, 0)), covered(a=(1.5, 1)),
     '{"files": {}, "files": {}}', "[" * 100_000],
    ids=lambda each: str(each)[:20],
)  # fmt: skip
def test_coverage_that_says_nothing_is_refused(text):
    assert refusal("coverage", ran(0, suite(CASE), text))


def test_regression_counts_a_test_that_is_skipped_now_as_one():
    before, skipped = ran(0, suite(CASE)), ran(0, suite(CASE.replace("/>", "><skipped/></testcase>")))
    report = parse_report("regression", {"before": before, "after": skipped}, TASK)
    assert (report["regressions"], report["missing"], report["coverage_delta"]) == (
        ["tests/test_x.py::test_a"],
        [],
        None,
    )
    assert refusal("regression", before)
    assert refusal("regression", {"before": before, "after": ran(0)})


FINDING = {"filename": "/workspace/a.py", "location": {"row": 3, "column": 1}, "code": "F401", "message": "unused"}


def test_lint_and_secrets_are_read_as_findings():
    found = parse_report("ruff", {"status": 1, "value": [FINDING, {**FINDING, "code": None}]}, TASK)
    assert [(each["path"], each["line"], each["rule"]) for each in found["findings"]] == [
        ("a.py", 3, "F401"), ("a.py", 3, "syntax-error"),
    ]  # fmt: skip
    value = {"files": 2, "findings": [{"path": "a.py", "line": 3, "rule": "aws-access-key"}]}
    assert parse_report("secrets", {"status": 1, "value": value}, TASK)["findings"] == value["findings"]


@pytest.mark.parametrize(
    ("reads", "result"),
    [
        ("ruff", {"status": 0, "value": [FINDING]}),
        ("ruff", {"status": 1, "value": []}),
        ("ruff", {"status": 2, "value": []}),
        ("ruff", {"status": 0, "stdout": "[]"}),
        ("ruff", {"status": 1, "value": [FINDING] * 10_001}),
        ("ruff", {"status": 1, "value": [{**FINDING, "filename": "/etc/passwd"}]}),
        ("ruff", {"status": 1, "value": [{**FINDING, "filename": "/workspace/../x"}]}),
        ("ruff", {"status": 1, "value": ["found"]}),
        ("secrets", {"status": 0, "value": {"files": 1, "findings": [{"path": "a", "line": 1, "rule": "x"}]}}),
        ("secrets", {"status": 1, "value": {"files": 1, "findings": []}}),
        ("secrets", {"status": 0, "value": {"findings": []}}),
        ("secrets", {"status": 0, "value": []}),
        ("taste", {"status": 0}),
    ],
    ids=lambda each: str(each)[:40],
)
def test_findings_that_contradict_the_exit_status_or_lead_elsewhere_are_refused(reads, result):
    assert refusal(reads, result)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([suite(CASE), BOMB]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["status", "value", "outputs", ".xml", ".json", "findings", "files"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PARSERS)), JSON)
def test_any_result_is_read_or_refused(reads, result):
    try:
        parse_report(reads, result, TASK)
    except ReportRefused as problem:
        assert str(problem)  # noqa: PT017 - it may also be read
