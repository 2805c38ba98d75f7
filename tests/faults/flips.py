"""Bits flipped at random in ledgers: none is accepted, and no reader ends in anything but a report."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import ledgers

from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verify import verify_file

FLIPS = 16


def flipped(whole: bytes, seed: int) -> bytes:
    """Return *whole* with sixteen bits flipped, in whatever bytes."""
    chance, raw = random.Random(seed), bytearray(whole)
    while raw == whole:
        for _ in range(FLIPS):
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    return bytes(raw)


def books() -> list[bytes]:
    """Return honest ledgers of every kind, as an oracle writes them."""
    made = (ledgers.run, ledgers.call, ledgers.workspace, ledgers.approved, ledgers.queue, ledgers.tasked)
    return [book().bytes() for book in made]


def accepted(work: Path, seeds: range, level: Literal["hashes", "full"] = "hashes") -> Iterator[int]:
    """Yield the seeds whose flips a reader accepts; there should be none."""
    schemas, path, whole = Schemas.load(data_folder("schemas")), work / ".events.jsonl", books()
    for seed in seeds:
        path.write_bytes(flipped(whole[seed % len(whole)], seed))
        report = verify_file(path, schemas=schemas, level=level)
        if report.sound or not all(line.isprintable() for line in report.lines()):
            yield seed
