"""Several processes that write the ledger of one workspace at the same time: one chain, in which all of it stands."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from .writers import Said, Style, end, go, heard, kept, start


@attrs.frozen
class Race:
    """What a race came to: how many processes wrote how many events, of which the file has *held*."""

    processes: int
    events: int
    held: int

    def __str__(self) -> str:
        return f"{self.processes} processes, {self.events} events each: all {self.held} of them in one chain"


def race(place: Path, processes: int, events: int, size: int) -> Race:
    """Let so many *processes* append so many *events* of some *size* bytes each, all at once, and look for all of them.

    Whatever each was told stands where it was told, in its order, once.
    """
    style = Style("workspace", size // 2)
    names = [f"p{number}" for number in range(processes)]
    writers = [start(place, style, name, events // 2) for name in names]
    try:
        go(writers)
        with ThreadPoolExecutor(processes) as readers:
            said = list(readers.map(_all_said, names, writers))
        assert [writer.wait() for writer in writers] == [0] * processes
    finally:
        end(writers)
    last = [one for one in said if one]
    assert last == [Said(name, events // 2 - 1, one.seq) for name, one in zip(names, last, strict=True)]
    held, torn = kept(place, style, last)
    assert torn == 0
    assert held == processes * events + 2, f"{held} events are there"  # the root, and one of whoever looked
    return Race(processes, events, held - 2)


def _all_said(name: str, writer: "subprocess.Popen[bytes]") -> Said | None:
    assert writer.stdout
    return heard(name, writer.stdout.read())
