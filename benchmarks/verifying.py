"""Verification of a large ledger, beside parsing its lines and doing nothing with them (T6)."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from benchmarks.measures import Line, Measure, Note
from benchmarks.processes import resident
from benchmarks.rounds import CPU, Work, once_each
from benchmarks.workspaces import ARGS, ledger_file, session
from deedbook.schema import Schemas, data_folder
from deedbook.verify import Level, verify_file

_EVENTS: Final = 100_000
_TARGETS: Final[dict[Level, float]] = {"chain": 1.2, "hashes": 0.6, "full": 0.28}
_SPAN_BYTES: Final = 16
"""What the spans, which the full check needs, may take for each event."""


def run() -> Iterator[Line]:
    """Measure speed at each level, and how memory grows with the file."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large.jsonl", Path(folder) / "small.jsonl"
        _copy_ledger(large, _EVENTS)
        _copy_ledger(small, _EVENTS // 10)
        yield from _speed(large)
        yield from _memory(small, large)


def _copy_ledger(place: Path, events: int) -> None:
    with session() as made:
        while made.ledger.size < events - 1:  # no two calls are the same, so that nothing is proved only once
            made.call("echo", {"text": f"{ARGS['text']} ({made.ledger.size})"})
        file = ledger_file(made)
        made.end(ok=True, reason="done")
        place.write_bytes(file.read_bytes())


def _speed(file: Path) -> Iterator[Line]:
    schemas = Schemas.load(data_folder("schemas"))

    def floor() -> None:
        with file.open("rb") as lines:
            for line in lines:
                orjson.loads(line)

    def at(level: Level) -> Work:
        def work() -> None:
            report = verify_file(file, schemas=schemas, level=level)
            assert report.sound, report

        return work

    times = once_each({"floor": floor, **{level: at(level) for level in _TARGETS}}, clock=CPU, rounds=7)
    yield Note(f"verify: {_EVENTS} events, {file.stat().st_size >> 20} MiB")
    for level, target in _TARGETS.items():
        speed = 1 / times.ratio(level, "floor")
        yield Measure(f"verify {level}: speed, orjson.loads of each line = 1", "at least", target, speed)


def _memory(small: Path, large: Path) -> Iterator[Line]:
    more = _EVENTS - _EVENTS // 10
    for level in _TARGETS:
        grown = _resident_after(large, level) - _resident_after(small, level)
        if level == "full":
            yield Measure("verify full: memory for each event more", "at most", _SPAN_BYTES, grown / more, unit="B")
        else:
            yield Measure(
                f"verify {level}: memory for ten times the events", "at most", 2, grown / 2**20, 0, unit="MiB"
            )


def _resident_after(file: Path, level: Level) -> int:
    return resident(
        "from deedbook.schema import Schemas, data_folder\n"
        "from deedbook.verify import verify_file\n"
        f"assert verify_file({str(file)!r}, schemas=Schemas.load(data_folder('schemas')), level={level!r}).sound"
    )
