"""Addresses of Unix sockets at paths of any length: the system limits them to about a hundred bytes.

This module imports nothing of Deedbook, so that a client connects quickly.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
_TRAVERSE = _DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
"""Opens a folder only to go through it, without the right to read it, on systems that know the difference."""


@contextmanager
def address(folder: int, name: str) -> Iterator[str]:
    """Give an address of *name* in the *folder* behind a descriptor, valid while the descriptor is open.

    Without ``/proc`` the process changes its working directory meanwhile, so no other thread should run.
    """
    if sys.platform == "linux":
        yield f"/proc/self/fd/{folder}/{name}"
        return
    before = os.open(".", _DIRECTORY)
    try:
        os.fchdir(folder)
        yield name
    finally:
        os.fchdir(before)
        os.close(before)


def connect(path: str | Path, seconds: float | None = None) -> socket.socket:
    """Return a connection to the socket at *path*; raises `OSError`. *seconds* is its time-out from then on."""
    place = Path(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        folder = os.open(place.parent, _TRAVERSE)
        try:
            with address(folder, place.name) as at:
                connection.connect(at)
        finally:
            os.close(folder)
    except BaseException:
        connection.close()
        raise
    return connection
