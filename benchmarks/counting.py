"""What `deedbook stats` costs: a ledger folded to figures, beside parsing its lines, and how its memory grows.

The ledger has a million events when the variable ``DEEDBOOK_EVENTS`` says so; a tenth otherwise.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson

from benchmarks.measures import Line, Note
from benchmarks.processes import resident
from benchmarks.rounds import CPU, once_each
from benchmarks.workspaces import ARGS, ledger_file, session
from deedbook.observing.accounts import as_json
from deedbook.observing.figures import FiguresFold
from deedbook.reader import read

_EVENTS = int(os.environ.get("DEEDBOOK_EVENTS", "100000"))


def run() -> Iterator[Line]:
    """Measure speed, and memory of one ledger and of one ten times as long."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large.jsonl", Path(folder) / "small.jsonl"
        with session() as made:
            while made.ledger.size < _EVENTS - 1:
                made.call("echo", ARGS)
            file = ledger_file(made)
            made.end(ok=True, reason="done")
            large.write_bytes(file.read_bytes())
        with large.open("rb") as lines:
            small.write_bytes(b"".join(line for _, line in zip(range(_EVENTS // 10), lines, strict=False)))

        def floor() -> None:
            with large.open("rb") as lines:
                for line in lines:
                    orjson.loads(line)

        times = once_each({"floor": floor, "stats": lambda: _counted(large)}, clock=CPU, rounds=3)
        ratio = times.ratio("stats", "floor")
        yield Note(f"stats: {_EVENTS} events, {ratio:.1f} times as long as parsing their lines")
        counted = "import sys; from pathlib import Path; from benchmarks.counting import _counted; _counted(Path({!r}))"
        grown = resident(counted.format(str(large))) - resident(counted.format(str(small)))
        yield Note(f"stats: {grown // 1024} KiB more memory for ten times the events")


def _counted(place: Path) -> int:
    fold = FiguresFold()
    figures = fold.start()
    for event in read(place):
        fold.step(figures, event)
    events: int = as_json(fold.close(figures))["events"]
    return events
