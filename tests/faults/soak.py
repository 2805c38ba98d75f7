"""Minutes of load: four writers, one of which is killed every few seconds, and a reader that verifies what they write.

Each writer has a session of its own, ends it after many events and begins the next; of every ten appends one goes to
the workspace's ledger, which all share.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import attrs

sys.path.insert(0, str(Path(__file__).parents[1]))

from writing import NAME, again, begin, note, shared

from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verify import verify_file
from faults.writers import Said, found

PAIRS = 10_000
"""Appends after which a session ends."""
SETTLED = 2.0
"""Seconds after which a process's memory is looked at."""


@attrs.define
class Life:
    """One process: what it held, at first and at last, of memory (bytes), descriptors, and CPU time (seconds)."""

    first: tuple[int, int] | None = None
    last: tuple[int, int] = (0, 0)
    cpu: float = 0.0

    @property
    def grown(self) -> tuple[int, int]:
        """By how much memory and descriptors grew."""
        first = self.first or self.last
        return self.last[0] - first[0], self.last[1] - first[1]


@attrs.define
class Soaked:
    """What came of it: appends acknowledged in each quarter with the CPU they took, lives, kills, verifications."""

    quarters: list[int] = attrs.field(factory=lambda: [0, 0, 0, 0])
    cpu: list[float] = attrs.field(factory=lambda: [0.0, 0.0, 0.0, 0.0])
    writers: list[Life] = attrs.field(factory=list)
    reader: Life = attrs.field(factory=Life)
    kills: int = 0
    verified: int = 0
    events: int = 0
    torn: int = 0

    @property
    def held(self) -> float:
        """The rate of the last quarter, the second's = 1: of time or of CPU, whichever other work disturbed less."""
        rates = [each / max(cpu, 0.01) for each, cpu in zip(self.quarters, self.cpu, strict=True)]
        return max(self.quarters[3] / max(self.quarters[1], 1), rates[3] / max(rates[1], 0.01))

    def lines(self) -> Iterator[str]:
        """Yield the figures, one a line."""
        grown, reading = [life.grown for life in self.writers], self.reader.grown
        by_cpu = [each / max(cpu, 0.01) for each, cpu in zip(self.quarters, self.cpu, strict=True)]
        for name, figure in {
            "appends acknowledged, and lost": f"{sum(self.quarters)}, 0",
            "writers killed, torn tails set aside": f"{self.kills}, {self.torn}",
            "ledgers verified meanwhile": f"{self.verified}",
            "events found at the end, all ledgers sound": f"{self.events}",
            "appends by quarter": ", ".join(map(str, self.quarters)),
            "last quarter to second": f"{self.quarters[3] / max(self.quarters[1], 1):.2f}",
            "the same for each second of CPU": f"{by_cpu[3] / max(by_cpu[1], 0.01):.2f}",
            "a writer's memory at most, and how far it grew": _memory(self.writers),
            "the reader's": _memory([self.reader]),
            "descriptors more": f"{max(each[1] for each in [*grown, reading])}",
        }.items():
            yield f"{name:48} {figure}"


def _memory(lives: list[Life]) -> str:
    most, grown = max(life.last[0] for life in lives), max(life.grown[0] for life in lives)
    return f"{most / 2**20:.1f} MiB, {grown / 2**20:.1f} MiB"


# --- the processes ----------------------------------------------------------------------------------------------------


def write(place: Path, name: str, life: str) -> None:
    """Write for ever; say ``<session> <number> <seq>`` or ``state <number> <seq>`` for what was acknowledged."""
    dice = random.Random(life)
    with closing(shared(place / "state")) as home:
        shares = count()
        for number in count():
            folder = place / f"{name}-{number}"
            if _ended(folder):
                continue
            with closing(again(folder) if _begun(folder) else begin(folder)) as ledger:
                for each in range(PAIRS):
                    text = "x" * dice.randint(0, 600)
                    pair = [note(ledger, f"{life}.{each}.{part}:{text}") for part in "ab"]
                    seq = ledger.append(pair, durable=dice.random() < 0.2)
                    os.write(1, b"%b %d %d\n" % (folder.name.encode(), each, seq))
                    if each % 10 == 0:
                        share = next(shares)
                        seq = home.append([note(home, f"{life}.{share}.{part}:") for part in "ab"])
                        os.write(1, b"state %d %d\n" % (share, seq))
                ledger.append([note(ledger, "after", "session.end")], durable=True)
            (folder / "ended").touch()


def _begun(folder: Path) -> bool:
    return (folder / NAME).exists() and (folder / NAME).stat().st_size > 0


def _ended(folder: Path) -> bool:
    return (folder / "ended").exists()


def read(place: Path) -> None:
    """Verify whatever ledgers are there, for ever; say a line for each, and stop at one that is broken."""
    schemas = Schemas.load(data_folder("schemas"))
    while True:
        for folder in sorted(place.glob("*-*")):
            if _begun(folder):
                _verified(folder / NAME, schemas)
        if _begun(place / "state/workspace"):
            _verified(place / "state/workspace" / NAME, schemas)


def _verified(file: Path, schemas: Schemas) -> None:
    report = verify_file(file, schemas=schemas, level="hashes")
    assert not report.bytes.failures, report
    os.write(1, b"verified\n")


# --- watching them ----------------------------------------------------------------------------------------------------


@attrs.define
class _Load:
    """All processes of a soak, and what they said."""

    place: Path
    begun: float
    seconds: float
    soaked: Soaked = attrs.field(factory=Soaked)
    said: dict[tuple[str, str], Said] = attrs.field(factory=dict)
    lives: Counter[str] = attrs.field(factory=Counter)
    threads: list[threading.Thread] = attrs.field(factory=list)

    def quarter(self) -> int:
        return min(3, int((time.monotonic() - self.begun) / self.seconds * 4))

    def wait_until_it_runs(self, *processes: "subprocess.Popen[bytes]") -> None:
        """Begin the time of the soak when there is something written and verified: processes may start slowly."""
        while not (self.said and self.soaked.verified):
            assert all(process.poll() is None for process in processes), "a process ended by itself"
            time.sleep(0.05)
        self.begun = time.monotonic()

    def start(self, *told: str) -> "subprocess.Popen[bytes]":
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([sys.executable, __file__, str(self.place), *told], **pipes)

    def writer(self, name: str) -> "tuple[subprocess.Popen[bytes], Life]":
        self.lives[name] += 1
        life = f"{name}x{self.lives[name]}"
        process, seen = self.start("write", name, life), Life()
        self.soaked.writers.append(seen)
        self.threads.append(threading.Thread(target=self._hear, args=(process, life)))
        self.threads[-1].start()
        return process, seen

    def _hear(self, process: "subprocess.Popen[bytes]", life: str) -> None:
        """Keep the last that a writer said of each ledger, and count."""
        assert process.stdout
        with process.stdout as said:
            for line in said:
                if line.endswith(b"\n"):
                    where, number, seq = line.decode().split()
                    self.said[where, life] = Said(life, int(number), int(seq))
                    self.soaked.quarters[self.quarter()] += 1

    def count_verified(self, reader: "subprocess.Popen[bytes]") -> None:
        assert reader.stdout
        with reader.stdout as said:
            for _ in said:
                self.soaked.verified += 1

    def look(self, process: "subprocess.Popen[bytes]", life: Life, age: float, *, writing: bool) -> None:
        """Take note of what a process holds now."""
        try:
            held = resident(process.pid), len(os.listdir(f"/proc/{process.pid}/fd"))
            spent = cpu(process.pid)
        except OSError:  # it has ended
            return
        life.last = held
        if life.first is None and age > SETTLED:
            life.first = held
        if writing:
            self.soaked.cpu[self.quarter()] += spent - life.cpu
        life.cpu = spent


def resident(pid: int) -> int:
    """Return the memory that a process holds, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu(pid: int) -> float:
    """Return the CPU time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def soak(place: Path, seconds: float, *, writers: int = 4, every: float = 3.0) -> Soaked:
    """Let *writers* write for so long, kill one *every* few seconds, and look at everything in the end."""
    load = _Load(place, time.monotonic(), seconds)
    names = [f"w{number}" for number in range(writers)]
    running = {name: (*load.writer(name), time.monotonic()) for name in names}
    reader, reading = load.start("read"), load.soaked.reader
    counting = threading.Thread(target=load.count_verified, args=(reader,))
    counting.start()
    try:
        load.wait_until_it_runs(reader, *(process for process, _, _ in running.values()))
        next_kill = load.begun + every
        while (now := time.monotonic()) < load.begun + seconds or (every and not load.soaked.kills):
            time.sleep(min(0.25, seconds / 20))
            for process, life, since in running.values():
                load.look(process, life, now - since, writing=True)
                assert process.poll() is None, "a writer ended by itself"
            load.look(reader, reading, now - load.begun, writing=False)
            assert reader.poll() is None, "the reader found a broken ledger"
            if every and now > next_kill:
                victim = random.choice(names)
                running[victim][0].kill()
                running[victim][0].wait()
                load.soaked.kills += 1
                running[victim] = (*load.writer(victim), time.monotonic())
                next_kill = now + every
    finally:
        for process in (reader, *(process for process, _, _ in running.values())):
            process.kill()
            process.wait()
        for thread in (*load.threads, counting):
            thread.join()
    _look_for_all(load)
    return load.soaked


def _look_for_all(load: _Load) -> None:
    """Check each ledger by itself, and that what was acknowledged of it is there."""
    for folder in [*load.place.glob("*-*"), load.place / "state" / "workspace"]:
        mine = folder.name if folder.name != "workspace" else "state"
        kind = "session" if folder.name != "workspace" else "workspace"
        if _begun(folder):
            with closing(shared(load.place / "state") if kind == "workspace" else again(folder)):
                pass
            events, torn = found(folder, kind, [said for (where, _), said in load.said.items() if where == mine])
            load.soaked.events += events
            load.soaked.torn += torn


if __name__ == "__main__":
    if sys.argv[2] == "write":
        write(Path(sys.argv[1]), *sys.argv[3:])
    else:
        read(Path(sys.argv[1]))
