"""What a phase of a pipeline costs: calls of the door, files that it does not look at, and the runner's own work."""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.measures import Line, Measure
from benchmarks.rounds import Figure, Plan
from deedbook import Branch, Event, Ok, Run
from deedbook.contract import Limits
from deedbook_testing.lab import Lab

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins" / "deedbook-flow-swe" / "tests"))

from shop import Shop, git  # type: ignore[import-not-found]

_FEW: Final = 100
_MANY: Final = 10_000
_TASKS: Final = 1000
_FEW_TASKS: Final = 40
_ROUNDS: Final = 7
_CALLS: Final = 20
"""Calls in a branch that reads or writes."""
_SCOPE: Final = ["tasks/task-1/outline/**", "world/patterns/**"]
_PHASES: Final = {"outline": "without git", "build": "with two patches in git", "check": "that checks"}


def run(plan: Plan) -> Iterator[Line]:
    """Count the calls of a task, and let its phases, reads and writes take turns beside few and many files."""
    few, many = plan.size(_FEW, 5), plan.size(_MANY, 20)
    rounds = plan.size(_ROUNDS, 1)
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        shops = {name: _Place(Path(folder) / str(name), name) for name in (few, many)}
        found = [{name: shop.run_task() for name, shop in shops.items()} for _ in range(rounds)]
        yield Measure(
            "a phase: calls of the door beside its commands, the most of four",
            "at most",
            20,
            shops[few].most,
            unit="calls",
        )
        what = f"with {many:,} files in the repository and as many in the data folder: to {few}"
        for phase, how in _PHASES.items():
            yield Measure(f"a phase {how}, {what}", "at most", 2, _ratio(found, phase, many, few))
        calls = [{name: shop.call_in_branch() for name, shop in shops.items()} for _ in range(rounds)]
        for kind in ("read", "write"):
            text = f"a {kind} within the limits of a contract, {what}"
            yield Measure(text, "at most", 1.25, _ratio(calls, kind, many, few))
    yield from _other_tasks(plan.size(_TASKS, 30), rounds)
    yield from _runner(rounds)


def _ratio(rounds: list[dict[int, dict[str, float]]], kind: str, many: int, few: int) -> Figure:
    return Figure.of([each[many][kind] / each[few][kind] for each in rounds])


class _Place:
    """A workspace with *files* in the repository of its project, and as many in its data folder."""

    def __init__(self, folder: Path, files: int) -> None:
        folder.mkdir()
        self._lab = Lab(folder)
        self._shop = Shop(self._lab, with_git=True)
        self._number, self.most = 0, 0
        for number in range(files):
            for name in (
                f"repos/shop/src/{number % 100}/{number}.py",
                f"tasks/task-0/notes/{number % 100}/{number}.md",
            ):
                self._lab.write(name, f"# {number}\n", system=False)
        git(self._shop.repository, "add", ".")
        git(self._shop.repository, "commit", "-q", "-m", "files")
        self._times: dict[str, float] = {}
        self._lab.flow("branch", self._call_in_branch)
        self._lab.skill("branch", allows="swe/read swe/write")
        for path in ("tasks/task-1/outline/spec.md", "world/patterns/a.md"):
            self._lab.write(path, "# A page\n", system=False)

    def run_task(self) -> dict[str, float]:
        """Run the next task, and return the seconds of each of its phases."""
        self._number += 1
        identity = f"task-{self._number + 1}"
        self._shop.good()
        answers = self._shop.answers
        self._shop.answers = {
            role: [text.replace("task-1", identity) for text in texts] for role, texts in answers.items()
        }
        listening = _PhaseClock()
        with self._lab.session("run") as session:
            session.ledger.subscribe(listening)
            task = {"id": identity, "title": "Raise the limit", "request": "Raise the limit.", "project": "shop"}
            ran = session.run(json.dumps(task), "swe/small")
        assert isinstance(ran, Ok), ran
        self.most = max(self.most, listening.most)
        return listening.seconds

    def add_tasks(self, count: int) -> None:
        """Run a task, and put copies of its parts into the shared files, as of *count* tasks that have ended."""
        self.run_task()
        root, own = self._lab.path, f"task-{self._number + 1}"
        states, metrics = root / "shared/pipeline-state.yaml", root / "metrics/pipeline.jsonl"
        head, row = states.read_text().split("tasks:\n")
        names = [f"old-{number}" for number in range(count)]
        states.write_text(f"{head}tasks:\n{''.join(row.replace(own, name) for name in names)}")
        lines = metrics.read_text()
        metrics.write_text("".join(lines.replace(own, name) for name in names))

    def call_in_branch(self) -> dict[str, float]:
        """Read a scope and write a file inside a branch with limits; return the CPU seconds of each."""
        with self._lab.session("run") as session:
            ran = session.run("branch")
        assert isinstance(ran, Ok), ran
        return dict(self._times)

    def _call_in_branch(self, args: Any, run: Run) -> str:
        limits = Limits(reads=tuple(_SCOPE), writes=("tasks/task-1/outline/*",))
        read = {"paths": ["tasks/task-1/outline/spec.md"], "optional": _SCOPE}
        write = {"paths": ["tasks/task-1/outline/new.md"], "texts": ["# New\n"], "expected": [None]}
        for kind, given in (("read", read), ("write", write)):

            def repeat(inner: Run, kind: str = kind, given: Mapping[str, Any] = given) -> None:
                begun = time.thread_time()
                for _ in range(_CALLS):
                    inner.call(f"swe/{kind}", given)
                self._times[kind] = time.thread_time() - begun

            run.parallel([Branch(kind, repeat, limits=limits)])
        return "done"


class _PhaseClock:
    """A listener on a ledger: how long each phase took, and the most calls that one made beside its commands."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.most = self._calls = 0
        self._begun = 0.0

    def __call__(self, event: Event) -> None:
        said: Any = event.payload
        if event.type == "tool.call":
            self._calls += said["tool_name"] != "swe/tests"
        elif event.type == "swe.phase_started":
            self._begun = time.perf_counter()
        elif event.type == "swe.phase_completed":
            now = time.perf_counter()
            self.seconds[said["phase"]] = self.seconds.get(said["phase"], 0.0) + now - self._begun
            self._begun = now
            self.most, self._calls = max(self.most, self._calls), 0


def _other_tasks(many: int, rounds: int) -> Iterator[Line]:
    """Run tasks in a workspace that had many tasks before, and in one that had few."""
    few = min(_FEW_TASKS, many // 2)
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        places = {name: _Place(Path(folder) / str(name), 1) for name in (few, many)}
        for count, place in places.items():
            place.add_tasks(count)
        found = [{name: each.run_task() for name, each in places.items()} for _ in range(rounds)]
    what = f"a phase without git, after {many:,} other tasks: to after {few}"
    yield Measure(what, "at most", 1.25, _ratio(found, "outline", many, few))


# --- the runner's own work --------------------------------------------------------------------------------------------


def _runner(rounds: int) -> Iterator[Line]:
    """Run a task, and make the same calls and requests without the runner; both in new workspaces, CPU time."""
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
            whole, steps = _time_task(Path(folder) / "task")
            found.append(whole / _time_steps(Path(folder) / "steps", steps))
    text = "a task of four runs of phases, without git: to its calls and requests alone, CPU"
    yield Measure(text, "at most", 3, Figure.of(found))


def _time_task(folder: Path) -> tuple[float, list[tuple[str, Any]]]:
    """Run a task in a new workspace; return its CPU seconds, and the calls and requests that it made."""
    folder.mkdir()
    lab = Lab(folder)
    shop = Shop(lab)
    shop.good()
    with lab.session("run") as session:
        begun = time.process_time()
        ran = session.run(json.dumps({"id": "task-1", "title": "Go", "request": "Go.", "project": "shop"}), "swe/small")
        seconds = time.process_time() - begun
    assert isinstance(ran, Ok), ran
    requests = iter(shop.requests)
    steps: list[tuple[str, Any]] = []
    for event in lab.events():
        said: Any = event.payload
        if event.type == "tool.call":
            steps.append((said["tool_name"], said["args"]))
        elif event.type == "llm.request":
            steps.append(("", next(requests)))
    return seconds, steps


def _time_steps(folder: Path, steps: list[tuple[str, Any]]) -> float:
    """Make *steps* in a flow of a new workspace, and return the CPU seconds."""
    folder.mkdir()
    lab = Lab(folder)
    shop = Shop(lab)
    shop.good()

    def repeat(args: Any, run: Run) -> str:
        for name, given in steps:
            if name:
                run.call(name, given)
            else:
                request = {key: given[key] for key in ("messages", "response_schema")}
                run.agent(given["role"]).complete(request, tier="mid")
        return "done"

    lab.flow("repeat", repeat)
    lab.skill("repeat", allows=" ".join(sorted({name for name, _ in steps if name})))
    with lab.session("run") as session:
        begun = time.process_time()
        ran = session.run("repeat")
        seconds = time.process_time() - begun
    assert isinstance(ran, Ok), ran
    return seconds
