"""The lock that lets only one process serve a state folder, and the information about that process."""

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
INFO: Final = "runtime.json"
_MAX_INFO: Final = 64 * 1024


@contextmanager
def hold_instance_lock(state: Folder, info: Object) -> Iterator[None]:
    """Lock the *state* folder for this process, with *info* about it for a second process.

    The lock ends with the process. Raises `DeedbookError` (``RUNTIME_RUNNING``).
    """
    fd = _open_lock(state)
    try:
        try:
            flock(fd, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            holder = read_info(state)
            who = f"process {holder['pid']}, since {holder['since']}," if "since" in holder else "another process"
            why = f"{who} serves this workspace already; connect to it, or stop it first"
            raise DeedbookError(fault("RUNTIME_RUNNING", why, place=f"{state.path}/{LOCK}")) from None
        state.replace(INFO, canonical.encode(dict(info)))
        try:
            yield
        finally:
            with suppress(OSError, DeedbookError):
                state.remove(INFO)
    finally:
        os.close(fd)


def read_info(state: Folder) -> dict[str, Any]:
    """Return the information of the process that serves *state*, or of the last one that was killed; else ``{}``."""
    with suppress(OSError, DeedbookError, ValueError):
        found = canonical.decode(state.read(INFO, limit=_MAX_INFO))
        if isinstance(found, dict):
            return found
    return {}


def _open_lock(state: Folder) -> int:
    with suppress(FileExistsError):
        return state.append(LOCK, create=True)
    return state.append(LOCK, create=False)
