"""Runs: transitions beside appends, rebuilding and resuming beside reading, branches beside calls."""

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.measures import Line, Measure
from benchmarks.rounds import Plan
from benchmarks.workspaces import session
from deedbook import Run
from deedbook.contract import Branch
from deedbook.format.context import ContextFold, Recorder
from deedbook.format.folds import fold
from deedbook.format.reader import read
from deedbook_testing.lab import Lab

_NOTES: Final = 5_000
_CALLS: Final = 2_000
_BRANCHES: Final = 16
_ROUNDS: Final = 9
_NOTE: Final = {"event_type": "loop.turn", "data": {"turn": 7, "found": ["one", "two"]}}


def run(plan: Plan) -> Iterator[Line]:
    """Measure contexts on a real ledger, then whole runs in a workspace of the lab."""
    yield from _contexts(plan)
    yield from _resume(plan)
    yield from _branches(plan)


def _contexts(plan: Plan) -> Iterator[Line]:
    with session() as made:
        recorder = Recorder(lambda event_type, payload: made.note(event_type, "runtime", payload, cause=made.cause))
        recorder.create("a task", "benchmark")
        times = plan.take_turns(
            {
                "append": lambda: made.note("context.noted", "runtime", _NOTE),
                "transition": lambda: recorder.note("loop.turn", _NOTE["data"]),  # type: ignore[arg-type]
            }
        )
        yield Measure(
            "a transition: to an append of the same event", "at most", 1.5, times.ratio("transition", "append")
        )
    with session() as made:
        recorder = Recorder(lambda event_type, payload: made.note(event_type, "runtime", payload, cause=made.cause))
        recorder.create("a task", "benchmark")
        notes = plan.size(_NOTES, 20)
        for _ in range(notes):
            recorder.note("loop.turn", _NOTE["data"])  # type: ignore[arg-type]
        place = made.ledger.place
        times = plan.once_each(
            {"read": lambda: list(read(place)), "rebuild": lambda: fold(ContextFold(), read(place))}, rounds=_ROUNDS
        )
        what = f"rebuilding a context of {notes:,} events: to reading them"
        yield Measure(what, "at most", 3, times.ratio("rebuild", "read"))


def _resume(plan: Plan) -> Iterator[Line]:
    calls = plan.size(_CALLS, 10)

    def work(_args: Any, run: Run) -> None:
        for number in range(calls):
            run.call("echo", {"number": number})
        raise KeyboardInterrupt  # as often as it is called: the run stays open

    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        lab = _lab(folder, work)
        with suppress(KeyboardInterrupt), lab.session("run") as made:
            made.run("hello")
        place = Path(made.ledger.place)

        def resume() -> None:
            with suppress(KeyboardInterrupt), lab.kernel() as kernel, kernel.resume(made.id) as again:
                again.go_on()

        def open_only() -> None:
            with lab.kernel():
                pass

        times = plan.once_each({"read": lambda: list(read(place)), "open": open_only, "resume": resume}, rounds=_ROUNDS)
        what = f"resuming a run of {calls:,} calls: to opening the workspace and reading its events twice"
        yield Measure(what, "at most", 1, times.ratio_to_sum("resume", "open", "read", "read"))


def _branches(plan: Plan) -> Iterator[Line]:
    count = plan.size(_BRANCHES, 2)

    def in_sequence(run: Run) -> None:
        for number in range(count):
            for _ in range(10):
                run.call("echo", {"number": number})

    def side_by_side(run: Run) -> None:
        run.parallel([Branch(f"b{number}", _ten_calls(number)) for number in range(count)])

    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        ways = {"sequence": in_sequence, "branches": side_by_side}

        def work(args: Any, run: Run) -> None:
            ways[args["prompt"].split()[-1]](run)
            run.answer("done")

        lab = _lab(folder, work)
        with lab.session("run") as made:
            import time

            times = plan.once_each(
                {name: lambda name=name: made.run(f"hello {name}") for name in ways},
                rounds=_ROUNDS,
                clock=time.process_time_ns,
            )
        what = f"{count} branches of ten calls: to the same calls in sequence, CPU of the process"
        yield Measure(what, "at most", 1.3, times.ratio("branches", "sequence"))


def _ten_calls(number: int) -> Any:
    def work(run: Run) -> None:
        for _ in range(10):
            run.call("echo", {"number": number})

    return work


def _lab(folder: str, work: Any) -> Lab:
    lab = Lab(Path(folder))
    lab.tool("echo", lambda args, _ctx: args)
    lab.skill("greet", allows="echo", triggers="hello")
    lab.flow("work", work)
    return lab
