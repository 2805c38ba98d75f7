"""Kill a ledger's writer, or cut its disk's power, at a random moment, and count what was acknowledged and lost.

A test runs a few rounds; for many: ``python tests/killing.py --runs 500 --size 300`` (and ``--size 2000000``), and as
root, on a disk image, ``--power``.
"""

import argparse
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from writing import again, begin, checked, note

from deedbook.files import Folder
from deedbook.sealed import opened

SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN; with `NO_LOG_FLUSH` the disk keeps what was synced, and nothing else."""
NO_LOG_FLUSH = struct.pack("I", 2)


def write_for_ever(place: Path, size: int, *, always: bool) -> None:
    """Append until killed; say each seq on standard output after it was acknowledged."""
    ledger = again(place) if place.exists() else begin(place)
    os.write(1, b"ready\n")
    while True:
        text = f"{ledger.size}:{'x' * random.randint(0, size * 2)}"
        seq = ledger.append([note(ledger, text), note(ledger, text)], durable=always or random.random() < 0.2)
        os.write(1, b"%d\n" % seq)


def stop_one(place: Path, size: int, stop: Callable[[subprocess.Popen[bytes]], bytes], *, always: bool = False) -> int:
    """Let a writer write for a moment, *stop* it, and return the last seq that it said was acknowledged."""
    command = [sys.executable, __file__, "--write", str(place), "--size", str(size), *(["--power"] if always else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == b"ready\n"
        first = writer.stdout.readline()
        time.sleep(random.uniform(0, 0.15))
        said = (first + stop(writer)).split(b"\n")
    assert writer.returncode
    return max(map(int, said[:-1]))


def kill(writer: subprocess.Popen[bytes]) -> bytes:
    """End a writer as the kernel's out-of-memory killer does; return what it said until then."""
    assert writer.stdout
    writer.send_signal(signal.SIGKILL)
    return writer.stdout.read()


def cut_power(folder: Path, writer: subprocess.Popen[bytes]) -> bytes:
    """Let the disk at *folder* lose what was not synced; return what *writer* had said until then.

    What it says afterwards does not count: without power it would say nothing, and after the cut the kernel lets an
    fdatasync succeed that it has not made.
    """
    assert writer.stdout
    fd = os.open(folder, os.O_RDONLY)
    os.set_blocking(writer.stdout.fileno(), False)
    said = writer.stdout.read() or b""
    ioctl(fd, SHUTDOWN, NO_LOG_FLUSH)
    os.close(fd)
    writer.kill()
    return said


def survived(place: Path, acknowledged: int) -> int:
    """Open the ledger again, check that it is sound and holds what was acknowledged; return how often it was torn."""
    ledger = again(place)
    ledger.append([note(ledger, "after")], durable=True)
    ledger.close()
    lines = checked(place)
    assert len(lines) > acknowledged + 1, f"{acknowledged} was acknowledged, {len(lines)} lines are there"
    with Folder.at(place) as folder:
        for seq, line in enumerate(lines):
            text = opened(folder, line["payload"]).get("text", "")
            assert text in ("", "after") or int(text.split(":")[0]) in (seq, seq - 1)
    return sum(line["event_type"] == "ledger.recovered" for line in lines)


def rounds(place: Path, runs: int, size: int) -> tuple[int, int]:
    """Kill *runs* writers of one ledger, one after the other; return the events acknowledged, and the torn tails."""
    acknowledged = torn = 0
    for _ in range(runs):
        acknowledged = max(acknowledged, stop_one(place, size, kill))
        torn = survived(place, acknowledged)
    return acknowledged + 1, torn


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[None]:
    """Mount the ext4 file system in *image*; `OSError` where that cannot be done."""
    done = subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr)
    try:
        yield
    finally:
        if subprocess.run(["umount", folder], capture_output=True, check=False).returncode:
            subprocess.run(["umount", "-l", folder], check=True)


def power_cuts(work: Path, runs: int, size: int) -> int:
    """Cut the power of a disk *runs* times while a ledger on it is written; return the events acknowledged."""
    image, folder, acknowledged = work / "disk", work / "mounted", 0
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(96 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)

    for _ in range(runs):
        with mounted(image, folder):
            acknowledged = max(acknowledged, stop_one(folder / "ledger", size, partial(cut_power, folder), always=True))
        with mounted(image, folder):
            survived(folder / "ledger", acknowledged)
    return acknowledged + 1


def main() -> None:
    """Run as many rounds as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--size", type=int, default=300)
    asked = parser.parse_args()
    if asked.write:
        write_for_ever(asked.write, asked.size, always=asked.power)
    acknowledged = torn = 0
    for begun in range(0, asked.runs, 10):
        with tempfile.TemporaryDirectory() as folder:
            runs = min(10, asked.runs - begun)
            cuts = (power_cuts(Path(folder), runs, asked.size), 0) if asked.power else ()
            done = cuts or rounds(Path(folder) / "ledger", runs, asked.size)
        acknowledged, torn = acknowledged + done[0], torn + done[1]
    print(f"{asked.runs} writers stopped: {acknowledged} events acknowledged, none lost, {torn} torn tails set aside")


if __name__ == "__main__":
    main()
