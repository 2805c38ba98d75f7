"""Where a Unix socket is, at paths of any length: the system takes about a hundred bytes, folders are longer.

Imports nothing of ours, since whoever only wants to connect should not wait for more.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HELD = os.O_DIRECTORY | os.O_CLOEXEC
_PASSED = _HELD | getattr(os, "O_PATH", os.O_RDONLY)
"""To go through a folder is not to read it, where the system knows the difference."""


@contextmanager
def address(folder: int, name: str) -> Iterator[str]:
    """Give the address of *name* in the *folder* behind a descriptor, as long as the descriptor is open.

    Where there is no ``/proc`` the process stands in the folder meanwhile, so other threads should not be at work.
    """
    if sys.platform == "linux":
        yield f"/proc/self/fd/{folder}/{name}"
        return
    before = os.open(".", _HELD)
    try:
        os.fchdir(folder)
        yield name
    finally:
        os.fchdir(before)
        os.close(before)


def connect(path: str | Path, seconds: float | None = None) -> socket.socket:
    """Return a connection to the socket at *path*; raises `OSError`. *seconds* is its time-out from then on."""
    place = Path(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(seconds)
        folder = os.open(place.parent, _PASSED)
        try:
            with address(folder, place.name) as at:
                made.connect(at)
        finally:
            os.close(folder)
    except BaseException:
        made.close()
        raise
    return made
