"""Which processes live: each holds the lock of a file of its own, and the system gives it back when it dies.

The files stand in ``<state>/processes``, named by process id, and are empty. What a process did stands in the ledger;
the lock says only that it still goes on, whatever became of its process number meanwhile. Beside it stands the lock by
which those who begin sessions and those who remove what never began keep out of each other's way.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from typing import Final

from deedbook.format.errors import FileRefused
from deedbook.format.events import TRACE_ID
from deedbook.format.files import Folder

from .journal import acquire

FOLDER: Final = "processes"
SESSIONS: Final = "sessions"
LOOK_SECONDS: Final = 20.0
"""How long a start waits for processes that look or remove, which takes them a moment."""
TURN_SECONDS: Final = 1.0
"""How long a removal waits for those who begin sessions."""
_ATTEMPTS: Final = 16


class Lifeline:
    """The lock of one process: held from `hold` until `release`, or until the process dies."""

    def __init__(self, state: Folder, process_id: str, fd: int) -> None:
        self._state, self._name, self._fd = state, f"{FOLDER}/{process_id}", fd

    @classmethod
    def hold(cls, state: Folder, process_id: str) -> "Lifeline":
        """Take the lock of a process that begins; raises `OSError` where no file can be made, and `LedgerError`."""
        state.make(FOLDER)
        name = f"{FOLDER}/{process_id}"
        for _ in range(_ATTEMPTS):
            fd = state.append(name, create=True, sync=False)
            # A process that looks holds the lock for a moment.
            acquire(fd, place=f"{state.path}/{name}", seconds=LOOK_SECONDS)
            if os.fstat(fd).st_nlink:
                return cls(state, process_id, fd)
            os.close(fd)  # taken for left behind before it was locked
        raise OSError(f"{name} is removed again and again")

    def release(self) -> None:
        """Give the lock back and remove its file; twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                self._state.remove(self._name, sync=False)
            os.close(fd)


def living(state: Folder) -> frozenset[str]:
    """Return the ids of the processes that live, of those that ever held a lifeline in this *state* folder."""
    return frozenset(name for name in _names(state) if _is_held(state, name))


def sweep(state: Folder) -> None:
    """Remove what dead processes left; a lifeline that is held stays."""
    for name in _names(state):
        with suppress(OSError, FileRefused):
            fd = state.append(f"{FOLDER}/{name}", create=False)
            try:
                flock(fd, LOCK_EX | LOCK_NB)
                state.remove(f"{FOLDER}/{name}", sync=False)
            finally:
                os.close(fd)


@contextmanager
def beginning(state: Folder) -> Iterator[None]:
    """Keep other processes from removing unbegun sessions while a session's folder and ledger are made.

    Raises `LedgerError` (``LEDGER_LOCKED``) if a removal takes longer than `LOOK_SECONDS`.
    """
    state.make(SESSIONS)
    with state.held(SESSIONS) as fd:
        # a process that removes holds it for a moment
        acquire(fd, place=f"{state.path}/{SESSIONS}", seconds=LOOK_SECONDS, shared=True)
        yield


@contextmanager
def removing(state: Folder) -> Iterator[None]:
    """Hold off everybody who begins a session, while one that never began is removed.

    Raises `LedgerError` (``LEDGER_LOCKED``) where sessions begin all the time, and `FileNotFoundError`.
    """
    with state.held(SESSIONS) as fd:
        acquire(fd, place=f"{state.path}/{SESSIONS}", seconds=TURN_SECONDS)
        yield
        os.fsync(fd)


def _names(state: Folder) -> list[str]:
    try:
        found = state.scan(FOLDER)
    except FileNotFoundError:
        return []
    return [name for name, folder, _ in found if not folder and TRACE_ID.fullmatch(name)]


def _is_held(state: Folder, name: str) -> bool:
    """Look whether anybody holds the lock, by taking it for a moment in the shared form."""
    try:
        with state.open(f"{FOLDER}/{name}") as file:
            flock(file.fileno(), LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, FileRefused):
        return False
    return False
