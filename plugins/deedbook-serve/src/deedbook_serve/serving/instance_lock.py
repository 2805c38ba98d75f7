"""Only one process serves a state folder: the lock that says so, and who holds it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from typing import Any, Final

from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, fault
from deedbook.format.files import Folder

LOCK: Final = "runtime.lock"
TOLD: Final = "runtime.json"
_MOST: Final = 64 * 1024


@contextmanager
def tenure(state: Folder, told: Object) -> Iterator[None]:
    """Hold the *state* folder for this process, with what is *told* of it to whoever comes second.

    The lock ends with the process, however that ends. Raises `DeedbookError` (``RUNTIME_RUNNING``).
    """
    fd = _file(state)
    try:
        try:
            flock(fd, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            holder = read(state)
            who = f"process {holder['pid']}, since {holder['since']}," if "since" in holder else "another process"
            why = f"{who} serves this workspace already; connect to it, or stop it first"
            raise DeedbookError(fault("RUNTIME_RUNNING", why, place=f"{state.path}/{LOCK}")) from None
        state.replace(TOLD, canonical.encode(dict(told)))
        try:
            yield
        finally:
            with suppress(OSError, DeedbookError):
                state.remove(TOLD)
    finally:
        os.close(fd)


def read(state: Folder) -> dict[str, Any]:
    """Return what the process that serves *state* told of itself, or the last that was killed; ``{}`` if none did."""
    with suppress(OSError, DeedbookError, ValueError):
        found = canonical.decode(state.read(TOLD, limit=_MOST))
        if isinstance(found, dict):
            return found
    return {}


def _file(state: Folder) -> int:
    with suppress(FileExistsError):
        return state.append(LOCK, create=True)
    return state.append(LOCK, create=False)
