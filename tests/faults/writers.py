"""Processes that write ledgers and say what was acknowledged, and what is then looked for in the files.

Each event says who wrote it and as which of theirs, so that nothing acknowledged can be missing unnoticed.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from json import loads
from pathlib import Path
from typing import Any

import attrs

sys.path.insert(0, str(Path(__file__).parents[1]))

from writing import NAME, again, begin, note, shared

from deedbook.charter.settings import CheckpointSettings
from deedbook.format.checkpoints import Checkpoint
from deedbook.format.errors import SignatureError
from deedbook.format.files import Folder
from deedbook.format.notes import Note
from deedbook.format.sealed import open_values
from deedbook.ledger.chain import Chain
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook_audit.verification.log import read_log
from deedbook_log.checkpoints.operations import LogOperations

SIGNS = "c"
"""How the name of a process begins that writes checkpoints."""
FIRST = {"session": "deedbook-session-1.1\n", "workspace": "deedbook-workspace-1.1\n"}


@attrs.frozen
class Style:
    """How a writer writes: which *kind* of ledger, texts of up to twice *size* bytes, how durably.

    *synced* says that only what an fdatasync covers is acknowledged, as power cuts ask.
    """

    kind: str = "session"
    size: int = 300
    durability: str = "boundary"
    synced: bool = False

    def folder(self, place: Path) -> Path:
        """Return the folder that the ledger of *place* lies in."""
        return place / "workspace" if self.kind == "workspace" else place

    def open(self, place: Path) -> Chain:
        """Open the ledger at *place*, or begin it."""
        if self.kind == "workspace":
            return shared(place, durability=self.durability)
        begun = (place / NAME).exists() and (place / NAME).stat().st_size
        return again(place, durability=self.durability) if begun else begin(place, durability=self.durability)


@attrs.frozen
class Said:
    """What a writer said was acknowledged: up to which of its events, and where the last one stands in the file."""

    writer: str
    count: int
    seq: int


# --- the process that writes ------------------------------------------------------------------------------------------


def write(place: Path, style: Style, name: str, count: int) -> None:
    """Append *count* pairs of events; say ``<number> <seq>`` on standard output once they were acknowledged."""
    ledger = style.open(place)
    os.write(1, b"ready\n")
    sys.stdin.buffer.readline()
    for number in range(count):
        size = random.randint(0, style.size * 2)
        pair = [note(ledger, f"{name}.{number}.{part}:{'x' * size}") for part in "ab"]
        durable = style.durability == "always" or random.random() < (0.5 if style.synced else 0.2)
        seq = ledger.append(pair, durable=durable)
        if durable or not style.synced:
            os.write(1, b"%d %d\n" % (number, seq))
    ledger.close()


def sign(place: Path, count: int) -> None:
    """Write checkpoints of the workspace's log; say ``<size> 0`` for each that is written."""
    with closing(shared(place)) as ledger:
        os.write(1, b"ready\n")
        sys.stdin.buffer.readline()
        for _ in range(count):
            os.write(1, b"%d 0\n" % signed(ledger, place))


def signed(ledger: WorkspaceLedger, place: Path) -> int:
    """Have a checkpoint made, with a first key where there is none, and return how many leaves it covers."""
    with Folder.at(place) as state:
        office = LogOperations(state, ledger, CheckpointSettings())
        try:
            return office.write_checkpoint().coverage.checkpoints[-1].size
        except SignatureError as problem:
            if "no key yet" not in problem.error.message:
                raise
        return office.rotate_key(lost=False).checkpoint.coverage.checkpoints[-1].size


def start(place: Path, style: Style, name: str, count: int = 10**9) -> "subprocess.Popen[bytes]":
    """Start a writer that waits for a line on its standard input."""
    told = [str(place), name, str(count), style.kind, str(style.size), style.durability, str(int(style.synced))]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "XDG_CONFIG_HOME": str(place.parent / "config")}
    return subprocess.Popen([sys.executable, __file__, *told], bufsize=0, env=environment, **pipes)


def go(writers: "list[subprocess.Popen[bytes]]") -> None:
    """Let writers begin, when all are ready."""
    for writer in writers:
        assert writer.stdout
        ready = writer.stdout.readline()
        assert ready == b"ready\n", ready
    for writer in writers:
        assert writer.stdin
        writer.stdin.write(b"go\n")
        writer.stdin.close()


def end(writers: "list[subprocess.Popen[bytes]]") -> None:
    """End writers, whatever they are doing, and give back what they hold."""
    for writer in writers:
        writer.kill()
        writer.wait()
        for pipe in (writer.stdin, writer.stdout):
            if pipe:
                pipe.close()


def heard(name: str, said: bytes) -> Said | None:
    """Return the last that a writer said in whole lines."""
    *whole, _ = said.split(b"\n")
    return Said(name, *map(int, whole[-1].split())) if whole else None


# --- what is in the file ----------------------------------------------------------------------------------------------


def checked(folder: Path, first: str) -> Iterator[dict[str, Any]]:
    """Yield the events of the ledger in *folder*, in flat memory, each line, hash and link checked with hashlib alone.

    Payloads have their sealed values opened.
    """
    prev = ""
    with Folder.at(folder) as beside, (folder / NAME).open("rb") as file:
        for seq, line in enumerate(file):
            assert line.endswith(b"}\n"), f"event {seq} is torn"
            header, _, rest = line.partition(b',"envelope_hash":"')
            event = loads(line)
            prev = prev or sha256(f"{first}{event['session_id']}".encode()).hexdigest()
            assert event["seq"] == seq, f"event {seq} says that it is {event['seq']}"
            assert event["prev_envelope_hash"] == prev, f"event {seq} does not follow"
            prev = sha256(header).hexdigest()
            assert event["envelope_hash"] == prev, f"event {seq}: another header"
            assert sha256(rest[64 + len('","payload":') : -2]).hexdigest() == event["payload_hash"], f"event {seq}"
            yield event | {"payload": open_values(beside, event["payload"])}


def logged(state: Path, size: int) -> int:
    """Check that the log of a workspace is sound and has the checkpoint of *size* leaves; return how many it has."""
    log = read_log(state)
    assert log is not None
    assert not log.findings.part().failures, log.findings.part()
    assert log.newest is None or log.newest.size <= log.size
    if not size:
        return log.size
    assert log.newest
    assert log.newest.size >= size, f"checkpoint {size} was acknowledged, {log.newest.size} is the newest"
    held = Checkpoint.parse(Note.parse((state / "checkpoint").read_text(encoding="utf-8")).text)
    assert held.size <= log.size, f"the file is ahead: {held.size} of {log.size}"
    assert held.root == log.tree.root(held.size)
    return log.size


def kept(place: Path, style: Style, said: "list[Said]") -> tuple[int, int]:
    """Open the ledger again, and check that it goes on, is sound, and holds what was acknowledged, in order.

    Returns how many events it has, and how many torn tails were set aside.
    """
    with closing(style.open(place)) as ledger:
        ledger.append([note(ledger, "after")], durable=True)
    if style.kind == "workspace":
        logged(place, max((one.count for one in said if one.writer.startswith(SIGNS)), default=0))
    return found(style.folder(place), style.kind, [one for one in said if not one.writer.startswith(SIGNS)])


def found(folder: Path, kind: str, said: "list[Said]") -> tuple[int, int]:
    """Check that the ledger in *folder* is sound and holds what was acknowledged, where it was said to be, in order.

    Returns how many events it has, and how many torn tails were set aside.
    """
    parts: dict[str, int] = {}
    acknowledged, events, torn = {(each.writer, each.count): each for each in said}, 0, 0
    for event in checked(folder, FIRST[kind]):
        events += 1
        torn += event["event_type"] == "ledger.recovered"
        name = str(event["payload"].get("text", "after")).partition(":")[0]
        if name == "after":
            continue
        writer, number, part = name.split(".")
        before, parts[writer] = parts.get(writer, -1), int(number) * 2 + "ab".index(part)
        assert parts[writer] == before + 1, f"{name} follows part {before} of {writer}: some are missing, or twice"
        if part == "b" and (one := acknowledged.pop((writer, int(number)), None)):
            assert one.seq == event["seq"], f"{name} was acknowledged as {one.seq} and stands at {event['seq']}"
    assert not acknowledged, f"lost: {sorted(acknowledged)}"
    return events, torn


if __name__ == "__main__":
    _place, _name, _count, _kind, _size, _durability, _synced = sys.argv[1:]
    if _name.startswith(SIGNS):
        sign(Path(_place), int(_count))
    else:
        write(Path(_place), Style(_kind, int(_size), _durability, bool(int(_synced))), _name, int(_count))
