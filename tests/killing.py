"""Kill a ledger's writer with SIGKILL at a random moment, and count what was acknowledged and lost.

A test runs a few rounds; for many: ``python tests/killing.py --runs 500 --size 300`` (and ``--size 2000000``).
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from writing import again, begin, checked, note

from deedbook.files import Folder
from deedbook.sealed import opened


def write_for_ever(place: Path, size: int) -> None:
    """Append until killed; say each seq on standard output after it was acknowledged."""
    ledger = begin(place) if not place.exists() else again(place)
    os.write(1, b"ready\n")
    while True:
        text = f"{ledger.size}:{'x' * random.randint(0, size * 2)}"
        seq = ledger.append([note(ledger, text), note(ledger, text)], durable=random.random() < 0.2)
        os.write(1, b"%d\n" % seq)


def kill_one(place: Path, size: int, seconds: float) -> int:
    """Let a writer write for *seconds*, kill it, and return the last seq that it said was acknowledged."""
    command = [sys.executable, __file__, "--write", str(place), "--size", str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == b"ready\n"
        try:
            writer.wait(seconds)
        except subprocess.TimeoutExpired:
            writer.send_signal(signal.SIGKILL)
        said = writer.stdout.read().split(b"\n")
    assert writer.returncode == -signal.SIGKILL
    return max(map(int, said[:-1]), default=0)


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
        acknowledged = max(acknowledged, kill_one(place, size, random.uniform(0.005, 0.15)))
        torn = survived(place, acknowledged)
    return acknowledged + 1, torn


def main() -> None:
    """Run as many rounds as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--size", type=int, default=300)
    asked = parser.parse_args()
    if asked.write:
        write_for_ever(asked.write, asked.size)
    acknowledged = torn = 0
    for begun in range(0, asked.runs, 10):
        with tempfile.TemporaryDirectory() as folder:
            done = rounds(Path(folder) / "ledger", min(10, asked.runs - begun), asked.size)
        acknowledged, torn = acknowledged + done[0], torn + done[1]
    print(f"{asked.runs} writers killed: {acknowledged} events acknowledged, none lost, {torn} torn tails set aside")


if __name__ == "__main__":
    main()
