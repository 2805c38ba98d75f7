"""What `deedbook stats` costs: a ledger folded to figures, beside parsing its lines, and how its memory grows."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from benchmarks.measures import Line, Value
from benchmarks.processes import resident
from benchmarks.rounds import Plan
from benchmarks.workspaces import ARGS, ledger_file, session
from deedbook.format.reader import read
from deedbook_inspect.observing.accounts import build_document
from deedbook_inspect.observing.figures import FiguresFold

_EVENTS: Final = 100_000


def run(plan: Plan) -> Iterator[Line]:
    """Measure speed, and memory of one ledger and of one ten times as long."""
    events = plan.size(_EVENTS, 400)
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large.jsonl", Path(folder) / "small.jsonl"
        with session() as made:
            while made.ledger.size < events - 1:
                made.call("echo", ARGS)
            file = ledger_file(made)
            made.end(ok=True, reason="done")
            large.write_bytes(file.read_bytes())
        with large.open("rb") as lines:
            small.write_bytes(b"".join(line for _, line in zip(range(events // 10), lines, strict=False)))

        def floor() -> None:
            with large.open("rb") as lines:
                for line in lines:
                    orjson.loads(line)

        times = plan.once_each({"floor": floor, "stats": lambda: _counted(large)}, rounds=plan.size(5, 1))
        yield Value(f"stats, {events:,} events: to orjson.loads of each line", times.ratio("stats", "floor"))
        yield Value("stats, an event: CPU", times.micros("stats", events), unit="µs")
        counted = "import sys; from pathlib import Path; from benchmarks.counting import _counted; _counted(Path({!r}))"
        grown = resident(counted.format(str(large))) - resident(counted.format(str(small)))
        yield Value("stats: memory for ten times the events", grown / 1024, unit="KiB")


def _counted(place: Path) -> int:
    fold = FiguresFold()
    figures = fold.start()
    for event in read(place):
        fold.step(figures, event)
    events: int = build_document(fold.close(figures))["events"]
    return events
