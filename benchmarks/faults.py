"""What ledgers have to stand, in full: ``python -m benchmarks.faults [name …]``; the tests run a little of each.

`kill` and `power` stop writers, `syscalls` lets each of their calls fail, `disks` each write of whole sessions, `race`
has eight of them at once, `flips` changes bits, `tamper` changes files as a writer of them can, `honest` looks
for false alarms, `soak` loads for ten minutes. Ends with 1 if anything acknowledged was lost, or anything wrong was
taken for sound.
"""

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from faults import flips, histories, killing, racing, sessions, soak, syscalls
from faults.attacks import ATTACKS
from faults.judging import Judge
from faults.logged import CONTROLS, LOGGED
from faults.states import honest
from faults.writers import Style


def kill(work: Path, share: float) -> Iterator[str]:
    """Stop 500 writers of small events and 100 of each large kind, with both ways of syncing."""
    for kind in ("session", "workspace"):
        for durability in ("boundary", "always"):
            for name, runs in (("small", 250), ("line", 50), ("sealed", 50)):
                style = Style(kind, killing.SIZES[name], durability)
                toll = killing.kills(work, max(1, round(runs * share)), style)
                yield f"kill -9, {kind}, {durability}, {name} events: {toll}"


def power(work: Path, share: float) -> Iterator[str]:
    """Cut the power of each file system 50 times: a session's small and large events, and the workspace's ledger."""
    for disk in killing.DISKS:
        for kind, name in (("session", "small"), ("workspace", "small"), ("session", "line"), ("session", "sealed")):
            style = Style(kind, killing.SIZES[name], synced=True)
            try:
                toll = killing.power_cuts(work, max(1, round(50 * share)), style, disk)
            except OSError as problem:
                yield f"power cut, {disk}: not tried here ({problem})"
                break
            yield f"power cut, {disk}, {kind}, {name} events: {toll}"


def calls(work: Path, share: float) -> Iterator[str]:
    """Let every system call of a writer fail in every way, and let its process die in front of each."""
    if not syscalls.available():
        yield "system calls: not tried here (strace is not installed, or may not hold a process)"
        return
    counts = syscalls.sweep(work, every=max(1, round(1 / share)))
    yield f"system calls: {counts['cases']} cases, 0 harmful; " + ", ".join(
        f"{counts[name]} {name}" for name in ("told", "unnoticed", "died")
    )


def disks(work: Path, share: float) -> Iterator[str]:
    """Let every write and every sync of a whole session fail, once and for good, and its process die there."""
    every = max(1, round(1 / share))
    for durability, log in ((mode, log) for mode in ("boundary", "always") for log in (False, True)):
        what, place = f"{durability}, {'a log' if log else 'no log'}", work / f"{durability}-{log}"
        counts = sessions.sweep(place / "disk", durability, every=every, log=log)
        yield f"failing disks, sessions, {what}: {counts['cases']} cases, {counts['told']} told"
        died = sessions.deaths(place / "deaths", durability, every=every, log=log)
        yield f"deaths at writes and syncs, sessions, {what}: {died}"


def race(work: Path, share: float) -> Iterator[str]:
    """Have eight processes append 5,000 events of 20 kB each to one workspace ledger."""
    yield f"race: {racing.race(work / 'raced', 8, max(2, round(5000 * share)), 20_000)}"


def flip(work: Path, share: float) -> Iterator[str]:
    """Flip sixteen bits 10,000 times, and have them looked for at both levels."""
    count = max(1, round(10_000 * share))
    for level in ("hashes", "full"):
        accepted = list(flips.accepted(work, range(count), level))
        assert not accepted, f"accepted at {level}: seeds {accepted[:10]}"
        yield f"flipped bits, {level}: {count} seeds of {flips.FLIPS} flips, 0 accepted"


def tamper(work: Path, share: float) -> Iterator[str]:
    """Do to a whole workspace, and to single ledgers, what a person can do who may write the files."""
    every, judge = max(1, round(1 / share)), Judge()
    for kind, attacks in (("files alone", ATTACKS), ("a log", LOGGED)):
        (work / kind).mkdir()
        state, tried = honest(work / kind, log=attacks is LOGGED), list(attacks)[::every]
        trust = ("--log-key", state.key) if state.key else ()
        for name in tried:
            missed = judge.misses(state, attacks[name], work / "copy", *trust)
            assert missed is None, f"{name}: {missed}"
            shutil.rmtree(work / "copy")
        yield f"manipulations of workspaces, found and named by {kind}: {len(tried)} of {len(tried)}"
    for name, change in CONTROLS.items():
        assert judge.found_only_by(state, change, work), name
        shutil.rmtree(work / "copy")
    yield f"found by a checkpoint kept elsewhere, and by nothing else: {len(CONTROLS)} of {len(CONTROLS)}"
    yield f"manipulations of lines, found and named: {_lines(work)}"


def _lines(work: Path) -> int:
    """Try what is done to single ledgers, as the tests have it; return how many manipulations there are."""
    import test_tampering as lines

    tries = {
        lines.test_hashes_find_and_name: lines.HASHED,
        lines.test_template_and_canonical_form_find_and_name_what_was_hashed_anew: lines.TEMPLATE,
        lines.test_structure_finds_and_names_what_was_hashed_anew: lines.STRUCTURE,
    }
    for attempt, names in tries.items():
        for name in names:
            attempt(work, name)
    return sum(map(len, tries.values()))


def honestly(work: Path, share: float) -> Iterator[str]:
    """Let workspaces have honest histories, until a thousand ledgers are there."""
    wanted, seeds, found = round(1000 * share), count(), 0
    while found < wanted:
        seed = next(seeds)
        found += sum(histories.ledgers_of(range(seed, seed + 1), work, steps=20))
        shutil.rmtree(work / f"w{seed}")
    yield f"honest ledgers: {found} in {next(seeds)} workspaces, no false alarm"


def load(work: Path, share: float) -> Iterator[str]:
    """Have four writers at work for ten minutes, one of them killed every three seconds, and a reader that verifies."""
    soaked = soak.soak(work, 600 * share)
    yield from (f"soak: {line}" for line in soaked.lines())
    memory = max(*(life.grown[0] for life in soaked.writers), soaked.reader.grown[0])
    assert memory < MOST_GROWTH, f"memory grew by {memory} bytes"
    assert max(*(life.grown[1] for life in soaked.writers), soaked.reader.grown[1]) <= 0, "descriptors leak"
    assert soaked.held >= LEAST_RATE, f"the rate fell to {soaked.held:.2f}"


MOST_GROWTH: Final = 32 * 2**20
"""How much memory a process may come to hold, beside what it held two seconds after it began."""
LEAST_RATE: Final = 0.8

FIGURES: Final[dict[str, Callable[[Path, float], Iterator[str]]]] = {
    "kill": kill,
    "power": power,
    "syscalls": calls,
    "disks": disks,
    "race": race,
    "flips": flip,
    "tamper": tamper,
    "honest": honestly,
    "soak": load,
}


def main() -> int:
    """Run what is asked for, and say what came of each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which; all of {', '.join(FIGURES)} by default")
    parser.add_argument("--share", type=float, default=1.0, help="how much of each: 0.1 is a tenth")
    asked = parser.parse_args()
    names = asked.names or list(FIGURES)
    if unknown := sorted(set(names) - set(FIGURES)):
        parser.error(f"no figure is called {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    warnings.simplefilter("ignore", DeprecationWarning)  # a process that has threads forks, and then only waits
    failed = False
    for name in names:
        with tempfile.TemporaryDirectory(prefix="deedbook-faults-") as folder:
            begun = time.monotonic()
            try:
                for line in FIGURES[name](Path(folder), asked.share):
                    print(f"{line} ({time.monotonic() - begun:.0f} s)", flush=True)
                    begun = time.monotonic()
            except AssertionError as problem:
                failed = True
                print(f"{name}: FAILED: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
