"""How the whole suite runs: no timed assertions, samples by default, everything with ``--campaign``."""

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

examples = int(os.environ.get("DEEDBOOK_EXAMPLES", "50"))  # a thousand is an afternoon's work, not every change's
settings.register_profile(
    "deedbook", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True, max_examples=examples
)
settings.load_profile("deedbook")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this repository's test suite."""
    parser.addoption("--cpu-report", metavar="FILE", help="write the CPU seconds of each test file to FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Start measuring where a report was asked for."""
    if config.getoption("cpu_report"):
        config.pluginmanager.register(CpuReport(Path(config.getoption("cpu_report"))))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use one worker more than there are cores: many tests wait for processes, clocks and disks."""
    return (os.cpu_count() or 1) + 1


class CpuReport:
    """Measures the CPU seconds of every test, with those of its processes that were waited for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before = cpu_seconds()
        self.seconds: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach what was used since the last report; the workers of xdist send it to the process that sums up."""
        report = yield
        now = cpu_seconds()
        report.user_properties = [*report.user_properties, ("cpu", now - self.before)]
        self.before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        used = next(value for name, value in reversed(report.user_properties) if name == "cpu")
        self.seconds[report.nodeid] += used
        self.tests[report.nodeid] = 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write one line for each test file, the most expensive first, and one for each expensive test."""
        if hasattr(session.config, "workerinput"):
            return
        files, tests = Counter[str](), Counter[str]()
        for test, used in self.seconds.items():
            files[test.split("::")[0]] += used
            tests[test.split("::")[0]] += 1
        lines = [f"{used:9.2f} {tests[file]:6} {file}" for file, used in files.most_common()]
        lines += [f"{used:9.2f}      1 {test}" for test, used in self.seconds.most_common() if used >= 0.2]
        total = f"{sum(files.values()):9.2f} {sum(tests.values()):6} all, without collection"
        self.path.write_text("\n".join([total, *lines, ""]), encoding="utf-8")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])
