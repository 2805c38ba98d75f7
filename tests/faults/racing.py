"""Several processes that write the ledger of one workspace at the same time: one chain, in which all of it stands."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from .writers import NAME, SIGNS, Said, Style, end, go, heard, kept, start


@attrs.frozen
class Race:
    """What a race came to: how many processes wrote how many events, how many the file has *held*, and checkpoints."""

    processes: int
    events: int
    held: int
    checkpoints: int

    def __str__(self) -> str:
        what = f"{self.processes} processes, {self.events} events each"
        return f"{what}: all {self.held} of them in one chain, {self.checkpoints} checkpoints in one tree"


def race(place: Path, processes: int, events: int, size: int) -> Race:
    """Let so many *processes* append so many *events* of some *size* bytes each, all at once, and look for all of them.

    Whatever each was told stands where it was told, in its order, once. One more process signs checkpoints meanwhile.
    """
    style = Style("workspace", size // 2)
    names = [f"p{number}" for number in range(processes)]
    writers = [start(place, style, name, events // 2) for name in names]
    signing = start(place, style, SIGNS)
    assert signing.stdout
    first = b""
    try:
        go([signing, *writers])
        with ThreadPoolExecutor(processes) as readers:
            said = list(readers.map(_all_said, names, writers))
        assert [writer.wait() for writer in writers] == [0] * processes
        first = signing.stdout.readline()  # on a fast disk, the writers may end before
    finally:
        signing.kill()
        signed = heard(SIGNS, first + signing.stdout.read())
        end([signing, *writers])
    last = [one for one in said if one]
    assert last == [Said(name, events // 2 - 1, one.seq) for name, one in zip(names, last, strict=True)]
    assert signed
    _, torn = kept(place, style, [*last, signed])
    assert torn <= 1  # of whoever signs, which is killed
    held = Counter(line.partition(b'"event_type":"')[2].partition(b'"')[0] for line in _lines(style.folder(place)))
    assert held[b"user.message"] == processes * events + 1, held  # one is of whoever looked
    return Race(processes, events, held[b"user.message"] - 1, held[b"ledger.checkpoint"])


def _lines(folder: Path) -> Iterator[bytes]:
    with (folder / NAME).open("rb") as file:
        yield from file


def _all_said(name: str, writer: "subprocess.Popen[bytes]") -> Said | None:
    assert writer.stdout
    return heard(name, writer.stdout.read())
