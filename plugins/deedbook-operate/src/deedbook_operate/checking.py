"""What a call checks before its intent: the freezes in force, under a lock that a freeze takes alone.

The state folder has the document (`freezes`) and the lock. The workspace ledger records each change, so a document that
was removed, or put back, is found out: its number is smaller than the recorded one. In every such case all calls are
denied.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
            for line in lines:
                if not line.endswith(b"\n"):
                    break  # it is being written, and read when it is complete
                if _MARK in line:
                    self._take(line[:-1])
                start += len(line)
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
        state.make(FOLDER)
        self._held = ExitStack()
        self._folder = self._held.enter_context(state.sub(FOLDER))
        self._fd = self._held.enter_context(self._folder.hold())
        self._ledger, self._keys = ledger, keys
        self.recorded = RecordedChanges(Path(state.path, "workspace", LEDGER_FILE))
        self._turn = Lock()
        self._known: tuple[bytes | None, FreezeState] = (None, FreezeState(ledger))

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
        try:
            raw = self._read_file()
        except OSError as problem:
            raise FreezeInvalid(f"it cannot be read: {problem.strerror or problem}") from None
        with self._turn:
            self._check_recorded(raw)
            return self._known[1]

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

    def close(self) -> None:
        """Close the folder."""
        self._held.close()


class CheckedCall:
    """Holds the shared lock around the intent of an *allowed* call.

    Entering raises `CallPrevented` if the call is frozen, or that is unknown.
    """

    __slots__ = ("_allowed", "_document", "_fd")

    def __init__(self, document: FreezeDocument, allowed: AllowedCall) -> None:
        self._document, self._allowed = document, allowed

    def __enter__(self) -> None:
        try:
            self._fd = self._document.acquire(shared=True)
        except (DeedbookError, OSError) as problem:
            raise _prevention_error(self._document, str(problem)) from None
        try:
            self._check()
        except BaseException:
            os.close(self._fd)
            raise

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

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
