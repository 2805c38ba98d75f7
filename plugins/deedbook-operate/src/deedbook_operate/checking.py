"""What a call checks before its intent: the freezes in force, under a lock that a freeze takes alone.

The state folder has the document (`freezes`) and the lock. The workspace ledger records each change, so a document that
was removed, or put back, is found out: its number is smaller than the recorded one. In every such case all calls are
denied.
"""

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from fcntl import LOCK_NB, LOCK_SH, LOCK_UN, flock
from pathlib import Path
from threading import Lock
from typing import Any, Final

from deedbook.contract.features import AllowedCall, CallPrevented
from deedbook.format.errors import DeedbookError
from deedbook.format.events import split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.ledger.journal import acquire, is_replaced

from .freezes import FOLDER, LOCK_FILE, MAX_BYTES, STATE_FILE, Freeze, FreezeInvalid, FreezeState

FROZEN: Final = "FROZEN"
"""The code of a call that is denied because of a freeze."""
LOCK_SECONDS: Final = 10.0
"""How long a call waits for the lock, which a freeze holds for a moment."""
RECORDS: Final = "x.freeze."
"""What the types of the recorded events begin with."""
_MARK: Final = b'"event_type":"x.freeze.'
_ATTEMPTS: Final = 16
_CHUNK: Final = 1 << 20
_TICKS: Final = 100_000_000
"""How many nanoseconds after a change of a folder its time may stay the same through a further one."""
_READING: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCKING: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class RecordedChanges:
    """The newest change of the freezes in the workspace ledger at *place*; each look reads only what was added."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._file: tuple[int, int] = (0, 0)
        self._read = 0
        self.number = 0
        self.newest: Mapping[str, Any] = {}

    def refresh(self) -> None:
        """Read what was added since; raises `OSError`, `LedgerError`."""
        now = self._place.stat()
        file = now.st_dev, now.st_ino
        if self._file == file and now.st_size == self._read:
            return
        start = 0 if self._file != file or now.st_size < self._read else self._read
        with self._place.open("rb") as lines:
            lines.seek(start)
            rest = b""
            while chunk := lines.read(_CHUNK):
                whole, newline, rest = (rest + chunk).rpartition(b"\n")
                start += len(whole) + len(newline)  # the rest may be being written, and is read when it is complete
                if _MARK in whole:
                    for line in whole.split(b"\n"):
                        if _MARK in line:
                            self._take(line)
        self._file, self._read = file, start

    def _take(self, line: bytes) -> None:
        """Take over the event in *line*, unless the mark is text in another event."""
        event = split_line(line, place=str(self._place)).event
        number = event.payload.get("number")
        if event.type.startswith(RECORDS) and type(number) is int and number > self.number:
            self.number, self.newest = number, event.payload


class FreezeDocument:
    """The document in the *state* folder of the workspace with this *ledger*, and its lock; safe to use in threads.

    *keys* are those of the approvers who may sign, by principal.
    """

    def __init__(self, state: Folder, ledger: str, keys: Mapping[str, str]) -> None:
        self._state, self._ledger, self._keys = state, ledger, keys
        self.recorded = RecordedChanges(Path(state.path, "workspace", LEDGER_FILE))
        self._turn = Lock()
        self._known: tuple[bytes | None, FreezeState] = (None, FreezeState(ledger))
        self._free: deque[int] = deque()
        self._opened, self._never = 0, (0, 0)
        self._held = ExitStack()
        self._open_folder()

    def _open_folder(self) -> None:
        """Open the folder of the document, which is made if it is missing."""
        self._release_locks()
        self._held.close()
        self._state.make(FOLDER)
        self._folder = self._held.enter_context(self._state.sub(FOLDER))
        self._fd = self._held.enter_context(self._folder.hold())
        self._opened, self._never = os.getpid(), (0, 0)

    @property
    def place(self) -> str:
        """Where the document is."""
        return f"{self._folder.path}/{STATE_FILE}"

    @property
    def lock_file(self) -> Path:
        """Where the lock is that calls hold while they record an intent."""
        return Path(self._folder.path, LOCK_FILE)

    def read(self) -> FreezeState:
        """Return the freezes in force; raises `FreezeInvalid` if the document is not what was written."""
        with self._turn:
            try:
                before = _describe_folder(self._fd)
                if not before[1]:
                    self._open_folder()
                raw = self._read_file()
            except OSError as problem:
                raise FreezeInvalid(f"it cannot be read: {problem.strerror or problem}") from None
            self._check_recorded(raw)
            self._note_folder(before)
            return self._known[1]

    def _note_folder(self, before: tuple[int, int]) -> None:
        """Note that there never was a freeze, if so, as long as the folder stays the same."""
        settled = time.time_ns() - before[0] > _TICKS
        free = self._known[0] is None and not self.recorded.number and self._known[1].number == 0
        self._never = before if free and settled and before == _describe_folder(self._fd) else (0, 0)

    def _read_file(self) -> bytes | None:
        """Return the bytes of the document, at most one more than it may have; ``None`` if it is not there."""
        try:
            fd = os.open(STATE_FILE, _READING, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        try:
            return os.read(fd, MAX_BYTES + 1)
        finally:
            os.close(fd)

    def _check_recorded(self, raw: bytes | None) -> None:
        """Take over the document *raw*, unless it is older than what is recorded, or than what was read before."""
        known, state = self._known
        try:
            self.recorded.refresh()
        except (DeedbookError, OSError, ValueError) as problem:
            raise FreezeInvalid(f"the workspace ledger cannot be compared with it: {problem}") from None
        if raw != known:
            state = FreezeState(self._ledger) if raw is None else FreezeState.parse(raw, self._ledger, self._keys)
        newest = max(self.recorded.number, self._known[1].number)
        if state.number < newest:
            what = "it was removed" if raw is None else f"it is change {state.number}"
            raise FreezeInvalid(f"{what}, and the newest one is change {newest}")
        self._known = raw, state

    def write(self, text: str) -> None:
        """Replace the document, durably."""
        self._folder.replace(STATE_FILE, text.encode())

    @contextmanager
    def lock(self, name: str = LOCK_FILE) -> Iterator[None]:
        """Hold a lock of this folder alone; raises `LedgerError` if it is not free in time, and `OSError`."""
        fd = self.acquire(name)
        try:
            yield
        finally:
            os.close(fd)

    def acquire(self, name: str = LOCK_FILE, *, shared: bool = False) -> int:
        """Return a descriptor that holds the lock until it is closed; raises as `lock` does.

        Each holder opens the file: descriptors that threads or forked processes share would share one lock.
        """
        for _ in range(_ATTEMPTS):
            fd = os.open(name, _LOCKING, 0o600, dir_fd=self._fd)
            try:
                acquire(fd, place=f"{self._folder.path}/{name}", seconds=LOCK_SECONDS, shared=shared)
                if not is_replaced(fd):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        raise OSError(f"{self._folder.path}/{name} is removed again and again")

    def begin_call(self) -> tuple[int, bool]:
        """Return a descriptor that shares the lock until `end_call`, and whether there is certainly no freeze.

        Raises as `acquire` does.
        """
        if self._opened != os.getpid():  # a forked process would share the locks of its parent
            with self._turn:
                self._free.clear()
                self._opened = os.getpid()
        try:
            fd = self._free.pop()
        except IndexError:
            return self.acquire(shared=True), False
        try:
            flock(fd, LOCK_SH | LOCK_NB)
            free = self._never == _describe_folder(self._fd)
            if free or not is_replaced(fd):  # the lock's name is in the folder, which is unchanged
                return fd, free
        except OSError:  # a freeze holds it
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return self.acquire(shared=True), False

    def end_call(self, fd: int) -> None:
        """Release the lock; the descriptor is used again."""
        if self._opened != os.getpid():
            os.close(fd)
            return
        flock(fd, LOCK_UN)
        self._free.append(fd)

    def _release_locks(self) -> None:
        while self._free:
            os.close(self._free.pop())

    def close(self) -> None:
        """Close the folder."""
        self._release_locks()
        self._held.close()


def _describe_folder(fd: int) -> tuple[int, int]:
    """Return when the names in a folder were last changed, and the number of its links: none if it was removed."""
    found = os.fstat(fd)
    return found.st_ctime_ns, found.st_nlink


class CheckedCall:
    """Holds the shared lock around the intent of an *allowed* call.

    Entering raises `CallPrevented` if the call is frozen, or that is unknown.
    """

    __slots__ = ("_allowed", "_document", "_fd")

    def __init__(self, document: FreezeDocument, allowed: AllowedCall) -> None:
        self._document, self._allowed = document, allowed

    def __enter__(self) -> None:
        try:
            self._fd, free = self._document.begin_call()
        except (DeedbookError, OSError) as problem:
            raise _prevention_error(self._document, str(problem)) from None
        if free:
            return
        try:
            self._check()
        except BaseException:
            self._document.end_call(self._fd)
            raise

    def __exit__(self, *_: object) -> None:
        self._document.end_call(self._fd)

    def _check(self) -> None:
        try:
            freezes = self._document.read().freezes
        except FreezeInvalid as problem:
            raise _prevention_error(self._document, str(problem)) from None
        if freezes:
            call = self._allowed.call
            who = call.principal
            for each in freezes:
                if each.covers((who.id, who.on_behalf_of), call.ability):
                    raise CallPrevented(FROZEN, describe_denial(each))


def describe_denial(freeze: Freeze) -> str:
    """Return why a call is denied, and what to do."""
    return f"{freeze}. Nothing runs until a person lifts it: deedbook thaw {freeze.id}"


def _prevention_error(document: FreezeDocument, why: str) -> CallPrevented:
    told = f"every call is denied, because the record of freezes ({document.place}) is not sound: {why}"
    return CallPrevented(FROZEN, f"{told}. A person looks at it with `deedbook freeze`, and lifts it: deedbook thaw")
