"""What a call checks before its intent: the freezes in force, under a lock that a freeze takes alone.

The state folder has the document (`freezes`) and the lock. The workspace ledger records each change, so a document that
was removed, or put back, is found out: its number is smaller than the recorded one. In every such case all calls are
denied.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from threading import Lock
from typing import Any, Final

from deedbook.contract.features import CallPrevented
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
        if self._file == (now.st_dev, now.st_ino) and now.st_size == self._read:
            return
        if self._file != (now.st_dev, now.st_ino) or now.st_size < self._read:
            self._file, self._read = (now.st_dev, now.st_ino), 0
        with self._place.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as lines:
            end = lines.rfind(b"\n") + 1  # a line that is being written is read when it is complete
            found, self._read = lines.rfind(_MARK, self._read, end), end
            while found >= 0 and not self._take(lines[lines.rfind(b"\n", 0, found) + 1 : lines.find(b"\n", found)]):
                found = lines.rfind(_MARK, 0, found)

    def _take(self, line: bytes) -> bool:
        """Take over an event; return whether it is a change of the freezes, and not text in another event."""
        event = split_line(line, place=str(self._place)).event
        number = event.payload.get("number")
        if not event.type.startswith(RECORDS) or type(number) is not int:
            return False
        if number > self.number:
            self.number, self.newest = number, event.payload
        return True


class FreezeDocument:
    """The document in the *state* folder of the workspace with this *ledger*, and its lock; safe to use in threads.

    *keys* are those of the approvers who may sign, by principal.
    """

    def __init__(self, state: Folder, ledger: str, keys: Mapping[str, str]) -> None:
        state.make(FOLDER)
        self._folder = state.sub(FOLDER)
        self._ledger, self._keys = ledger, keys
        self.recorded = RecordedChanges(Path(state.path, "workspace", LEDGER_FILE))
        self._turn = Lock()
        self._known: tuple[bytes | None, FreezeState] = (None, FreezeState(ledger))

    @property
    def place(self) -> str:
        """Where the document is."""
        return f"{self._folder.path}/{STATE_FILE}"

    def read(self) -> FreezeState:
        """Return the freezes in force; raises `FreezeInvalid` if the document is not what was written."""
        try:
            raw: bytes | None = self._folder.read(STATE_FILE, limit=MAX_BYTES)
        except FileNotFoundError:
            raw = None
        except (DeedbookError, OSError) as problem:
            raise FreezeInvalid(f"it cannot be read: {problem}") from None
        with self._turn:
            self._check_recorded(raw)
            return self._known[1]

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
    def lock(self, name: str = LOCK_FILE, *, shared: bool = False) -> Iterator[None]:
        """Hold a lock of this folder; raises `LedgerError` if it is not free in time, and `OSError`."""
        fd = self._locked(name, shared=shared)
        try:
            yield
        finally:
            os.close(fd)

    def _locked(self, name: str, *, shared: bool) -> int:
        for _ in range(_ATTEMPTS):
            fd = self._open(name)
            try:
                acquire(fd, place=f"{self._folder.path}/{name}", seconds=LOCK_SECONDS, shared=shared)
                if not is_replaced(fd):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        raise OSError(f"{self._folder.path}/{name} is removed again and again")

    def _open(self, name: str) -> int:
        try:
            return self._folder.append(name, create=False)
        except FileNotFoundError:
            try:
                return self._folder.append(name, create=True)
            except FileExistsError:
                return self._folder.append(name, create=False)

    def close(self) -> None:
        """Close the folder."""
        self._folder.close()


@contextmanager
def check_call(document: FreezeDocument, caller: Any, ability: str) -> Iterator[None]:
    """Hold the shared lock around the intent of a call; raises `CallPrevented` if it is frozen, or nobody can tell."""
    try:
        held = document.lock(shared=True)
        held.__enter__()
    except (DeedbookError, OSError) as problem:
        raise _prevented(document, str(problem)) from None
    try:
        who = (caller.principal.id, caller.principal.on_behalf_of)
        try:
            found = next((each for each in document.read().freezes if each.covers(who, ability)), None)
        except FreezeInvalid as problem:
            raise _prevented(document, str(problem)) from None
        if found is not None:
            raise CallPrevented(FROZEN, describe_denial(found))
        yield
    finally:
        held.__exit__(None, None, None)


def describe_denial(freeze: Freeze) -> str:
    """Return why a call is denied, and what to do."""
    return f"{freeze}. Nothing runs until a person lifts it: deedbook thaw {freeze.id}"


def _prevented(document: FreezeDocument, why: str) -> CallPrevented:
    told = f"every call is denied, because the record of freezes ({document.place}) is not sound: {why}"
    return CallPrevented(FROZEN, f"{told}. A person looks at it with `deedbook freeze`, and lifts it: deedbook thaw")
