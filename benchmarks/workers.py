"""What programs cost: kept alive, run once, and started without supervision."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from benchmarks.measures import Line, Measure, Value
from benchmarks.rounds import WALL, Plan
from deedbook.programs.process import BASE, SUPERVISOR
from deedbook.programs.workers import Workers

_CAT: Final = ["cat"]
_PYTHON: Final = [sys.executable, "-I", "-S", "-c", "for line in open(0): print(line, end='', flush=True)"]
_SUPERVISOR: Final = [sys.executable, "-I", "-S", str(SUPERVISOR), "1", "0"]
"""Ends at once, for it is no child of process 1, but not before all is imported."""


def run(plan: Plan) -> Iterator[Line]:
    """Let a kept program, one that is run once, and one that is merely started take turns; elapsed time counts."""
    with Workers() as workers:
        for name, program in (("cat", _CAT), ("Python", _PYTHON)):
            kept = workers.keep(program)
            times = plan.take_turns(
                {
                    "asked": lambda kept=kept: kept.ask(b"hello", 60),
                    "run": lambda program=program: workers.run(program, stdin=b"hello\n", seconds=60),
                    "started": lambda program=program: _start(program),
                },
                clock=WALL,
            )
            yield Measure(f"asking a kept {name}: to starting it", "at most", 0.05, times.ratio("asked", "started"))
            yield Value(f"running {name} once, watched: to starting it unwatched", times.ratio("run", "started"))
        times = plan.take_turns(
            {"forked": lambda: workers.run(["true"], seconds=60), "own": lambda: _start(_SUPERVISOR)}, clock=WALL
        )
        yield Measure(
            "running `true` once: to starting an interpreter for it", "at most", 0.5, times.ratio("forked", "own")
        )


def _start(program: list[str]) -> None:
    subprocess.run(program, input=b"hello\n", env=dict(BASE), capture_output=True, check=False)
