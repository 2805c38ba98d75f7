"""The processes that hold the lock of a file, for messages."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")


def find_lock_holders(path: Path) -> list[int]:
    """Return the ids of the processes that hold a lock of the file at *path*: none where the system lists no locks."""
    found: set[int] = set()
    with suppress(OSError, ValueError):
        file = path.stat()
        name = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
        for line in _LOCKS.read_text().splitlines():
            fields = line.split()  # such as "1: FLOCK ADVISORY READ 6813 fe:00:6513106 0 EOF"; "->" waits for a lock
            if len(fields) > 5 and "->" not in fields and fields[5] == name:
                found.add(int(fields[4]))
    return sorted(found - {os.getpid()})


def describe_lock_holders(path: Path) -> str:
    """Return which process to continue or to end, so that the lock of the file at *path* becomes free."""
    holders = find_lock_holders(path)
    names = f" {', '.join(map(str, holders))}" if holders else ""
    if len(holders) > 1:
        return f"Let the processes{names} go on (kill -CONT), or end them"
    return f"Let the process{names} go on (kill -CONT), or end it"
