"""What durability costs: one fdatasync for a call that writes, shared ones for many threads (T4). Wall time."""

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.calls import Record
from benchmarks.measures import Line, Measure, Value
from benchmarks.rounds import WALL, Plan, Work
from benchmarks.workspaces import ARGS, session
from deedbook.format.events import Entry, label, new_id
from deedbook.format.files import Folder
from deedbook.ledger.ledger import Ledger

_THREADS: Final = 16
_APPENDS: Final = 100
_CALLS: Final = 300


def run(plan: Plan) -> Iterator[Line]:
    """Measure a call whose intent is synced, and syncs that threads share."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _writing_call(plan, Path(folder))
        yield from _shared_syncs(plan, Path(folder))


def _writing_call(plan: Plan, folder: Path) -> Iterator[Line]:
    with session(durability="boundary", effects="write") as made:
        candidates = {"ours": lambda: made.call("echo", ARGS), "floor": bare(Record.of(made), folder / "bare.jsonl")}
        times = plan.once_each(candidates, clock=WALL, rounds=plan.size(_CALLS, 5))
    yield Value("two writes and one fdatasync: elapsed", times.micros("floor"), "µs")
    yield Measure(
        "durable call (boundary, writing): to write + fdatasync", "at most", 1.3, times.ratio("ours", "floor")
    )


def bare(record: Record, file: Path) -> Work:
    """Return the bare system calls: the intent's lines, a sync, the result's line."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    before, after = b"".join(record.before), b"".join(record.after)

    def work() -> None:
        os.write(fd, before)
        os.fdatasync(fd)
        os.write(fd, after)

    return work


def _shared_syncs(plan: Plan, folder: Path) -> Iterator[Line]:
    syncs, appends = 0, plan.size(_APPENDS, 5)

    def counted(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        os.fdatasync(fd)

    place = Folder.at(folder / "shared", create=True)
    ledger = Ledger.create(place, new_id(), new_id(), durability="always", fdatasync=counted)
    ledger.append([Entry(label("session.start", "runtime", None), ledger.span(), None, b"{}")])
    syncs = 0
    together = threading.Barrier(_THREADS)

    def writer() -> None:
        together.wait()
        for _ in range(appends):
            ledger.append(
                [Entry(label("user.message", "user", "ada"), ledger.span(), ledger.root, b'{"text":"hello"}')]
            )

    threads = [threading.Thread(target=writer) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    yield Measure(
        f"durable appends (always, {_THREADS} threads): events per sync",
        "at least",
        5,
        _THREADS * appends / syncs,
        unit="",
    )
