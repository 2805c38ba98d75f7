"""The tree of a ledger at given sizes, made from its file: what a leaf of the log says of it has to be that."""

from collections.abc import Iterable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from deedbook.format.files import Folder
from deedbook.format.lines import Lines
from deedbook.format.proofs import Frontier

from .hashes import MARK
from .headers import MAX_LINE


class State(NamedTuple):
    """What a ledger's first lines come to: the stored hash of the last of them, the root of their tree, its peaks."""

    head: str
    root: str
    peaks: tuple[str, ...]


def states(file: Path, sizes: Iterable[int]) -> tuple[int, dict[int, State]]:
    """Return how many lines *file* has, as far as *sizes* ask, and what it comes to at each of them that it reaches.

    Hashes are taken as they are stored; whether they are right is somebody else's question. A line without one adds
    nothing that any leaf could name. Raises `FileNotFoundError`, `FileRefused`.
    """
    wanted = sorted({size for size in sizes if size > 0})
    found: dict[int, State] = {}
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
            found[size] = State(last, frontier.root.hex(), tuple(peak.hex() for peak in frontier.peaks))
    return frontier.size, found


def _raw(stored: bytes) -> bytes:
    try:
        return bytes.fromhex(stored.decode("ascii"))
    except ValueError:
        return b""
