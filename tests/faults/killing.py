"""Writers killed, or their disk's power cut, at a random moment: what was acknowledged is there, whatever else is."""

import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from select import select

import attrs

from .writers import SIGNS, Said, Style, end, go, heard, kept, start

SHUTDOWN = 0x8004587D
"""``_IOR('X', 125, __u32)``: ext4 and XFS forget what is not on the disk."""
NO_LOG_FLUSH = struct.pack("I", 2)
FIRST_SECONDS = 30
"""How long is waited for the first word of a writer."""
SIZES = {"small": 300, "line": 450_000, "sealed": 2_500_000}
"""Bytes of a text, doubled at most: small ones, some that make a line large, some that are sealed."""
DISKS = {
    "ext4": (96, ["mkfs.ext4", "-q", "-F"], ["-o", "loop"]),
    "ext4 writeback": (96, ["mkfs.ext4", "-q", "-F"], ["-o", "loop,data=writeback"]),
    "xfs": (384, ["mkfs.xfs", "-q", "-f"], ["-o", "loop"]),
}
"""File systems: MiB, how one is made, how it is mounted."""


@attrs.define
class Toll:
    """What rounds of stopped writers came to."""

    stopped: int = 0
    acknowledged: int = 0
    torn: int = 0

    def __str__(self) -> str:
        return f"{self.stopped} writers stopped, {self.acknowledged} events acknowledged, 0 lost, {self.torn} torn"


class Power:
    """A disk whose power can be cut, in an image beneath *work*; `OSError` where this machine has none such."""

    def __init__(self, work: Path, kind: str = "ext4") -> None:
        size, make, self._options = DISKS[kind]
        if not shutil.which(make[0]):
            raise OSError(f"{make[0]} is not installed")
        self.folder, self._image = work / "mounted", work / "disk"
        self.folder.mkdir(exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(size * 1024 * 1024)
        done = subprocess.run([*make, self._image], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(done.stderr)

    @contextmanager
    def on(self) -> Iterator[Path]:
        """Mount it; `OSError` where that cannot be done."""
        mount = ["mount", *self._options, self._image, self.folder]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(done.stderr)
        try:
            yield self.folder
        finally:
            if subprocess.run(["umount", self.folder], capture_output=True, check=False).returncode:
                subprocess.run(["umount", "-l", self.folder], check=True)

    def cut(self, writers: "list[subprocess.Popen[bytes]]") -> list[bytes]:
        """Let the disk lose what was not synced; return what each of *writers* had said until then.

        What they say afterwards does not count: without power they would say nothing, and after the cut the kernel lets
        an fdatasync succeed that it has not made.
        """
        fd, said = os.open(self.folder, os.O_RDONLY), []
        for writer in writers:
            assert writer.stdout
            os.set_blocking(writer.stdout.fileno(), False)
            said.append(writer.stdout.read() or b"")
        ioctl(fd, SHUTDOWN, NO_LOG_FLUSH)
        os.close(fd)
        for writer in writers:
            writer.kill()
        return said


def kill(writers: "list[subprocess.Popen[bytes]]") -> list[bytes]:
    """End writers, one a moment after the other, as the kernel's out-of-memory killer does; return what they said."""
    said = []
    for writer in writers:
        assert writer.stdout
        writer.kill()
        said.append(writer.stdout.read())
        time.sleep(random.uniform(0, 0.01))
    return said


def stop_some(
    place: Path, style: Style, names: list[str], stop: Callable[[list["subprocess.Popen[bytes]"]], list[bytes]]
) -> list[Said]:
    """Let writers write for a moment, *stop* them, and return the last that each said was acknowledged."""
    writers = [start(place, style, name) for name in names]
    try:
        go(writers)
        select([writers[0].stdout], [], [], FIRST_SECONDS)
        time.sleep(random.uniform(0.01, 0.4 if style.size > 100_000 else 0.15))
        said = stop(writers)
    finally:
        end(writers)
    return [one for name, text in zip(names, said, strict=True) if (one := heard(name, text))]


def named(run: int, style: Style) -> list[str]:
    """Name the writers of a run: a session has one at a time, the workspace several, one of them signs checkpoints."""
    several = [f"r{run}w1", f"r{run}w2", f"{SIGNS}{run}"]
    return several if style.kind == "workspace" else several[:1]


def kills(work: Path, runs: int, style: Style, *, fresh: int = 10) -> Toll:
    """Kill so many writers; after every *fresh* runs a new ledger is begun."""
    toll, said = Toll(), list[Said]()
    for run in range(runs):
        place = work / f"ledger{run // fresh}"
        said = [] if run % fresh == 0 else said
        stopped = stop_some(place, style, named(run, style), kill)
        said += stopped
        _, torn = kept(place, style, said)
        toll.stopped += len(named(run, style))
        toll.acknowledged += sum(2 * (one.count + 1) for one in stopped if one.seq)
        if run % fresh == fresh - 1 or run == runs - 1:
            toll.torn += torn
            shutil.rmtree(place)
    return toll


def power_cuts(work: Path, runs: int, style: Style, kind: str = "ext4", *, fresh: int = 10) -> Toll:
    """Cut the power of a disk so many times while a ledger on it is written; `OSError` where that cannot be done."""
    toll, said = Toll(), list[Said]()
    for run in range(runs):
        if run % fresh == 0:
            power, said = Power(work, kind), []
        with power.on() as folder:
            stopped = stop_some(folder / "ledger", style, named(run, style), power.cut)
        said += stopped
        with power.on() as folder:
            if said:
                _, torn = kept(folder / "ledger", style, said)
                toll.torn += torn if run % fresh == fresh - 1 or run == runs - 1 else 0
        toll.stopped += len(named(run, style))
        toll.acknowledged += sum(2 * (one.count + 1) for one in stopped if one.seq)
    return toll
