"""The tree of a ledger at given sizes, computed from its file, for comparison with the log's leaves."""

from collections.abc import Iterable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from deedbook.format.checkpoints import Frontier
from deedbook.format.files import Folder
from deedbook.format.lines import Lines

from .hashes import MARK
from .headers import MAX_LINE


class LedgerState(NamedTuple):
    """The state of a ledger after its first lines: the last stored hash, the root of their tree, its peaks."""

    head: str
    root: str
    peaks: tuple[str, ...]


def compute_states(file: Path, sizes: Iterable[int]) -> tuple[int, dict[int, LedgerState]]:
    """Return the number of lines of *file* up to the largest size, and its state at each of *sizes*.

    Hashes are taken as stored; their check is elsewhere. A line without one adds a hash that no leaf names. Raises
    `FileNotFoundError`, `FileRefused`.
    """
    wanted = sorted({size for size in sizes if size > 0})
    found: dict[int, LedgerState] = {}
    frontier, last = Frontier(), ""
    with Folder.at(file.parent) as folder, folder.open(file.name) as opened:
        lines = iter(Lines(opened, MAX_LINE))
        for before, size in pairwise((0, *wanted)):
            for _, line in zip(range(size - before), lines, strict=False):
                stored = line.partition(MARK)[2][:64]
                frontier.push(sha256(b"\x00" + _raw(stored)).digest())
                last = stored.decode("ascii", "replace")
            if frontier.size < size:
                break
            found[size] = LedgerState(last, frontier.root.hex(), tuple(peak.hex() for peak in frontier.peaks))
    return frontier.size, found


def _raw(stored: bytes) -> bytes:
    try:
        return bytes.fromhex(stored.decode("ascii"))
    except ValueError:
        return b""
