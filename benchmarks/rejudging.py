"""Judging a large ledger again, beside reading it line by line and parsing its lines and doing nothing with them."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from benchmarks.measures import Line, Measure, Note
from benchmarks.rounds import Plan
from benchmarks.workspaces import ARGS, ledger_file, session
from deedbook_audit.rederive import rejudge

_CALLS: Final = 100_000
_WANTED: Final = 50_000
_ROUNDS: Final = 5


def run(plan: Plan) -> Iterator[Line]:
    """Measure calls a second: each is four lines, with a hook and a policy that are asked again."""
    calls = plan.size(_CALLS, 200)
    with session() as made:
        for _ in range(calls):
            made.call("echo", ARGS)
        written = ledger_file(made).read_bytes()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "large.jsonl"
            file.write_bytes(written)
            del written

            def again() -> None:
                found = Counter(each.change for each in rejudge(file, made.bindings))
                assert found == {"same": calls}, found

            works = {"reading": lambda: _read(file), "parsing": lambda: _parse(file), "again": again}
            times = plan.once_each(works, rounds=plan.size(_ROUNDS, 1))
            yield Note(f"whatif: {calls:,} calls, {file.stat().st_size >> 10:,} KiB")
            rate = 1e6 * calls / times.micros("again").value
            yield Measure("whatif: calls a second", "at least", _WANTED, rate, unit="/s")
            yield Measure("whatif: to orjson.loads of each line", "at most", 3.5, times.ratio("again", "parsing"))
            yield Measure("whatif: to reading line by line", "at most", 20, times.ratio("again", "reading"))


def _read(file: Path) -> None:
    with file.open("rb") as lines:
        for _ in lines:
            pass


def _parse(file: Path) -> None:
    with file.open("rb") as lines:
        for line in lines:
            orjson.loads(line)
