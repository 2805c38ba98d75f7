"""Failing disks for tests: system calls that fail as planned, an fdatasync that counts, a folder in memory."""

import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = os.geteuid() == 0


class FailingOs:
    """The `os` of a module, in which calls fail: *plan* says with what, by the name of the call and its number."""

    def __init__(self, plan) -> None:
        self.calls: list[str] = []
        self._plan = plan

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in SYSTEM_CALLS:
            return real

        def call(*args, **kwargs):
            self.calls.append(name)
            return self._plan(name, len(self.calls), lambda: real(*args, **kwargs), args)

        return call


SYSTEM_CALLS = {
    "open",
    "write",
    "pread",
    "fstat",
    "ftruncate",
    "fsync",
    "fdatasync",
    "mkdir",
    "rename",
    "unlink",
    "scandir",
}


def failing(monkeypatch, plan) -> FailingOs:
    fake = FailingOs(plan)
    for module in ("ledger.journal", "format.tail", "format.files", "ledger.ledger", "ledger.chain"):
        monkeypatch.setattr(f"deedbook.{module}.os", fake)
    return fake


def only(name, problem):
    """Plan that every call of *name* fails with *problem*."""

    def plan(called, _number, go, _args):
        if called == name:
            raise problem
        return go()

    return plan


NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
BROKEN_DISK = OSError(errno.EIO, "Input/output error")


class Disk:
    """An fdatasync that counts who called it, may fail, and knows what it has covered."""

    def __init__(self, *, slow: float = 0.0) -> None:
        self.callers: list[int] = []
        self.covered = 0
        self.failing = False
        self._slow = slow

    def __call__(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        self.callers.append(threading.get_ident())
        if self.failing:
            raise BROKEN_DISK
        time.sleep(self._slow)
        self.covered = max(self.covered, size)

    def in_this_thread(self) -> int:
        return self.callers.count(threading.get_ident())


@contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    """Give a folder in memory where there is one, for tests that sync thousands of times."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield otherwise
        return
    place = memory / f"deedbook-{os.getpid()}-{time.monotonic_ns()}"
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place)
