"""Which processes are alive: each holds the lock of a file of its own, which the system releases at its death.

The files are in ``<state>/processes``, named by process id, and empty. The ledger records what a process did; the lock
shows only that it is alive, even if its process number was reused. The same folder has the lock that separates
processes that begin sessions from those that remove unstarted ones.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from typing import Final

from deedbook.format.errors import FileRefused
from deedbook.format.events import TRACE_ID
from deedbook.format.files import Folder
from deedbook.ledger.journal import acquire

FOLDER: Final = "processes"
SESSIONS: Final = "sessions"
LOOK_SECONDS: Final = 20.0
"""How long a start waits for processes that check or remove, which is brief."""
TURN_SECONDS: Final = 1.0
"""How long a removal waits for processes that begin sessions."""
_ATTEMPTS: Final = 16


class Lifeline:
    """The lock of one process: held from `hold` until `release`, or until the process dies."""

    def __init__(self, state: Folder, process_id: str, fd: int) -> None:
        self._state, self._name, self._fd = state, f"{FOLDER}/{process_id}", fd

    @classmethod
    def hold(cls, state: Folder, process_id: str) -> "Lifeline":
        """Take the lock of a new process; raises `OSError` if its file cannot be created, and `LedgerError`."""
        state.make(FOLDER)
        name = f"{FOLDER}/{process_id}"
        for _ in range(_ATTEMPTS):
            fd = state.append(name, create=True, sync=False)
            # A process that checks holds the lock for a moment.
            acquire(fd, place=f"{state.path}/{name}", seconds=LOOK_SECONDS)
            if os.fstat(fd).st_nlink:
                return cls(state, process_id, fd)
            os.close(fd)  # removed as abandoned before it was locked
        raise OSError(f"{name} is removed again and again")

    def release(self) -> None:
        """Release the lock and remove its file; may be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                self._state.remove(self._name, sync=False)
            os.close(fd)


def list_living(state: Folder) -> frozenset[str]:
    """Return the ids of the processes with a held lifeline in this *state* folder."""
    return frozenset(name for name in _names(state) if _is_locked(state, name))


def sweep(state: Folder) -> None:
    """Remove the files of dead processes; a held lifeline stays."""
    for name in _names(state):
        with suppress(OSError, FileRefused):
            fd = state.append(f"{FOLDER}/{name}", create=False)
            try:
                flock(fd, LOCK_EX | LOCK_NB)
                state.remove(f"{FOLDER}/{name}", sync=False)
            finally:
                os.close(fd)


@contextmanager
def session_start_lock(state: Folder) -> Iterator[None]:
    """Keep other processes from removing unstarted sessions while a session's folder and ledger are created.

    Raises `LedgerError` (``LEDGER_LOCKED``) if a removal takes longer than `LOOK_SECONDS`.
    """
    state.make(SESSIONS)
    with state.hold(SESSIONS) as fd:
        # a process that removes holds it for a moment
        acquire(fd, place=f"{state.path}/{SESSIONS}", seconds=LOOK_SECONDS, shared=True)
        yield


@contextmanager
def removal_lock(state: Folder) -> Iterator[None]:
    """Keep other processes from beginning sessions, while an unstarted one is removed.

    Raises `LedgerError` (``LEDGER_LOCKED``) if sessions begin all the time, and `FileNotFoundError`.
    """
    with state.hold(SESSIONS) as fd:
        acquire(fd, place=f"{state.path}/{SESSIONS}", seconds=TURN_SECONDS)
        yield
        os.fsync(fd)


def _names(state: Folder) -> list[str]:
    try:
        found = state.scan(FOLDER)
    except FileNotFoundError:
        return []
    return [name for name, folder, _ in found if not folder and TRACE_ID.fullmatch(name)]


def _is_locked(state: Folder, name: str) -> bool:
    """Return whether a process holds the lock, by taking it briefly in the shared form."""
    try:
        with state.open(f"{FOLDER}/{name}") as file:
            flock(file.fileno(), LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, FileRefused):
        return False
    return False
