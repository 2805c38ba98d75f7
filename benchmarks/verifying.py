"""Verification of a large ledger, beside parsing its lines and doing nothing with them (T6)."""

import json
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson

from benchmarks.measures import Line, Measure, Note
from benchmarks.processes import resident
from benchmarks.rounds import Plan, Work
from benchmarks.workspaces import ARGS, ledger_file, session
from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verify import Level, verify_file

_EVENTS: Final = 100_000
_TARGETS: Final[dict[Level, float]] = {"chain": 1.2, "hashes": 0.6, "full": 0.28}
_SPAN_BYTES: Final = 16
"""What the spans, which the full check needs, may take for each event."""


def run(plan: Plan) -> Iterator[Line]:
    """Measure speed at each level, and how memory grows with the file."""
    events = plan.size(_EVENTS, 400)
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large.jsonl", Path(folder) / "small.jsonl"
        _copy_ledger(large, events)
        _copy_ledger(small, events // 10)
        yield Note(f"verify: {events:,} events, {large.stat().st_size >> 10:,} KiB, no two calls alike")
        yield from speeds(plan, large, rounds=7)
        yield from _memory(small, large, events - events // 10)


def _copy_ledger(place: Path, events: int) -> None:
    with session() as made:
        while made.ledger.size < events - 1:  # no two calls are the same, so that nothing is proved only once
            made.call("echo", {"text": f"{ARGS['text']} ({made.ledger.size})"})
        file = ledger_file(made)
        made.end(ok=True, reason="done")
        place.write_bytes(file.read_bytes())


def speeds(plan: Plan, file: Path, *, rounds: int) -> Iterator[Line]:
    """Measure the speed of verification at each level, beside parsing each line, and beside hashing payloads alone."""
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

    works: dict[str, Work] = {"floor": floor, "payloads": lambda: _payload_hashes(file)}
    works |= {level: at(level) for level in _TARGETS}
    times = plan.once_each(works, rounds=plan.size(rounds, 1))
    for level, target in _TARGETS.items():
        what = f"verify {level}: speed, orjson.loads of each line = 1"
        yield Measure(what, "at least", target, times.ratio("floor", level))
    what = "verify full: speed, hashes of payloads with json alone = 1"
    yield Measure(what, "at least", 2.5, times.ratio("payloads", "full"))


def _payload_hashes(file: Path) -> None:
    """Check what seed 002 checks: each payload's hash, over what the standard library writes of it."""
    with file.open("rb") as lines:
        for line in lines:
            event = json.loads(line)
            canonical = json.dumps(event["payload"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            assert sha256(canonical.encode()).hexdigest() == event["payload_hash"]


def _memory(small: Path, large: Path, more: int) -> Iterator[Line]:
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
        "from deedbook.format.schema import Schemas, data_folder\n"
        "from deedbook_audit.verify import verify_file\n"
        f"assert verify_file({str(file)!r}, schemas=Schemas.load(data_folder('schemas')), level={level!r}).sound"
    )
