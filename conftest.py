"""How the whole suite runs: no timed assertions, samples by default, everything with ``--campaign``."""

import compileall
import faulthandler
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "tests"))  # modules that several tests share

MEMORY = "/dev/shm"  # noqa: S108 - pytest makes a folder of its own there
TESTS = ("tests/test_*.py", "plugins/*/tests/**/test_*.py")
ROOM = 4 << 30
"""Bytes that have to be free there; the tests leave only what belongs to those that failed."""

LIMIT_S, CAMPAIGN_LIMIT_S = 300, 3600
"""Seconds that one test may take, on a busy machine too; a test with the marker `limit` has its own."""
STDERR = pytest.StashKey[int]()

settings.register_profile("sample", deadline=None, derandomize=True, print_blob=True, max_examples=25)
settings.register_profile("campaign", deadline=None, print_blob=True, max_examples=500)
settings.load_profile("sample")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this repository's test suite."""
    parser.addoption("--campaign", action="store_true", help="run every case of every law, fault and hostile set")
    parser.addoption("--pinned-skips", metavar="FILE", help="fail if a test is skipped that FILE does not list")
    parser.addoption("--guarantees", action="store_true", help="attack the workspace of each page and example, too")
    parser.addoption("--cpu-report", metavar="FILE", help="write the CPU seconds of each test file to FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Load the profile for property tests, and start measuring where a report was asked for."""
    hear_signals()
    config.addinivalue_line("markers", "campaign(keep=0): without --campaign, run only *keep* cases, always the same")
    config.addinivalue_line("markers", "limit(seconds): the test may take so long")
    config.stash[STDERR] = os.dup(2)  # pytest captures the descriptor itself while a test runs
    if config.getoption("campaign"):
        settings.load_profile("campaign")
    keep_compiled_code(config)
    if not config.getoption("campaign"):
        use_memory_for_files()
    share_fork_server(config)
    if config.getoption("cpu_report"):
        config.pluginmanager.register(CpuReport(Path(config.getoption("cpu_report"))))
    if config.getoption("pinned_skips") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(PinnedSkips(Path(config.getoption("pinned_skips"))))


def keep_compiled_code(config: pytest.Config) -> None:
    """Write compiled code once, even with ``PYTHONDONTWRITEBYTECODE``: each process would compile it again.

    The workers of xdist start without the variable, so that they keep the plugins of pytest, which they load before
    this file. They set it before the first test: tests write modules, change them at once, and import them again.
    """
    if hasattr(config, "workerinput"):
        sys.dont_write_bytecode = config.workerinput["dont_write_bytecode"]
        if config.workerinput["runs_all"]:
            compile_share(config)
        if sys.dont_write_bytecode:
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        return
    compileall.compile_dir(Path(__file__).parent / "core", quiet=2)
    if config.getoption("numprocesses", default=None):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def compile_share(config: Any) -> None:
    """Compile one worker's share of the test files, so that the workers do not compile each file several times.

    A worker that needs a file early compiles it itself.
    """
    number, count = int(config.workerinput["workerid"].removeprefix("gw")), config.workerinput["workercount"]
    root = Path(__file__).parent
    with suppress(ImportError, AttributeError, TypeError):  # pytest has no public names for this
        for path in sorted(path for name in TESTS for path in root.glob(name))[number::count]:
            folder = rewrite.get_cache_dir(path)
            compiled = folder / f"{path.stem}{rewrite.PYC_TAIL}"
            if not compiled.exists() and rewrite.try_makedirs(folder):
                stat, code = rewrite._rewrite_test(path, config)  # noqa: SLF001
                rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, compiled)  # noqa: SLF001


def share_fork_server(config: pytest.Config) -> None:
    """Let all workers of xdist use one process that forks; where CPU seconds are measured, each has its own."""
    if hasattr(config, "workerinput") or config.getoption("cpu_report"):
        return
    if config.getoption("numprocesses", default=None):
        import forked  # noqa: PLC0415 - as below

        os.environ[forked.SHARED] = str(forked.start())


def use_memory_for_files() -> None:
    """Put the folders of the tests into memory if it has room: they waited for the disk in a fifth of their time.

    A campaign writes to the disk. `PYTEST_DEBUG_TEMPROOT` in the environment, and ``--basetemp``, choose another place.
    """
    with suppress(OSError):  # there is no such folder
        memory = os.statvfs(MEMORY)
        room = memory.f_bavail * memory.f_frsize >= ROOM and not memory.f_flag & os.ST_NOEXEC
        if room and os.access(MEMORY, os.W_OK | os.X_OK):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist whether Python may write compiled code while tests run, and whether it runs all tests."""
    node.workerinput["dont_write_bytecode"] = sys.dont_write_bytecode
    node.workerinput["runs_all"] = node.config.args_source == pytest.Config.ArgsSource.TESTPATHS


def hear_signals() -> None:
    """Take what `nohup`, or a shell that starts a job in the background, has ignored: processes would inherit it.

    A handler is not inherited by a program that is started. So tests find what signals do by default.
    """
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, pass_over)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pass_over(_number: int, _frame: FrameType | None) -> None:
    """Ignore a signal in this process, and in no program that it starts."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep compiled tests even with ``PYTHONDONTWRITEBYTECODE``: three workers would compile all of them in each run.

    Only while tests are collected, and not while they write modules and import them. What is collected stays until the
    end, so the garbage collector need not look at it again, and looks less often at what tests make.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        sys.dont_write_bytecode = before


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only a campaign runs; of a set with `keep`, run so many cases, spread over the whole set."""
    if config.getoption("campaign"):
        return
    sets: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("campaign"):
            sets.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[pytest.Item] = set()
    for cases in sets.values():
        marker = cases[0].get_closest_marker("campaign")
        keep = marker.kwargs.get("keep", 0) if marker else 0
        left_out |= {*cases} - {cases[number * len(cases) // keep] for number in range(keep)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Print the stacks of all threads and end the process if a test takes too long; xdist then names the test."""
    marker = item.get_closest_marker("limit")
    general = CAMPAIGN_LIMIT_S if item.config.getoption("campaign") else LIMIT_S
    faulthandler.dump_traceback_later(marker.args[0] if marker else general, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True, scope="session")
def no_keys_of_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests away from the private keys of the user who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session")
def deedbook_command() -> str:
    """Give a program that is `deedbook`, started as a fork of a process that has imported it."""
    import forked  # noqa: PLC0415 - it is there once this file was read

    return str(forked.commands() / "deedbook")


@pytest.fixture(scope="session")
def sample_size(pytestconfig: pytest.Config) -> Callable[[int, int], int]:
    """Give a function that returns the first of two sizes by default, and the second in a campaign."""
    return lambda few, all_: all_ if pytestconfig.getoption("campaign") else few


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use one worker more than there are cores: many tests wait for processes, clocks and disks."""
    return (os.cpu_count() or 1) + 1


class PinnedSkips:
    """Lets the run fail if a test is skipped that is not listed: a test that never runs holds nothing.

    A line of the file is ``TEST: REASON``; TEST is without its parameters, and REASON may end in ``*``.
    """

    def __init__(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        self.path = path
        self.pinned = [line for line in lines if line and not line.startswith("#")]
        self.others: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that was skipped."""
        if report.skipped and isinstance(report.longrepr, tuple):
            self._note(report.nodeid, report.longrepr[2])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that was skipped."""
        if report.skipped and isinstance(report.longrepr, tuple):
            self._note(report.nodeid, report.longrepr[2])

    def _note(self, test: str, reason: str) -> None:
        line = f"{test.partition('[')[0]}: {reason.removeprefix('Skipped: ')}"
        if not any(line == pin or (pin.endswith("*") and line.startswith(pin[:-1])) for pin in self.pinned):
            self.others.add(line)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that was good otherwise."""
        if self.others and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the tests."""
        if self.others:
            terminalreporter.section(f"skipped, and not listed in {self.path}", red=True)
            for line in sorted(self.others):
                terminalreporter.line(line)


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
    """Return the CPU seconds of this process, of its children that have ended, and of those that go on."""
    ticks = 0
    for path in Path("/proc/self/task").glob("*/children"):  # nothing where the system has no such file
        with suppress(OSError):  # the thread or the process has just ended
            for child in path.read_text().split():
                ticks += sum(map(int, Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")
