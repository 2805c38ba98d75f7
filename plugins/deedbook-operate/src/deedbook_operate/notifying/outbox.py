"""What a target has not been told yet: the events of the workspace ledger behind a durable cursor.

The cursor moves after a message was delivered, so a message is sent at least once. Each target has its own.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.call.queue import ApprovalQueue
from deedbook.contract import Event
from deedbook.format import canonical
from deedbook.format.errors import BindingError, IntakeError, LedgerError, fault
from deedbook.format.events import split_line, timestamp
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.tail import lines_from_end

from .messages import Message, build_message

_FOLDER: Final = "notify"
_MARKS: Final = (b'"event_type":"approval.requested"', b'"event_type":"x.freeze.')
_REQUESTED: Final = "approval.requested"
_FREEZES: Final = ("x.freeze.frozen", "x.freeze.thawed")
_MAX_BYTES: Final = 4096


@attrs.frozen
class CursorPosition:
    """The last event that a target was told of: its number, and the hash of its line."""

    seq: int
    hash: str


@attrs.frozen
class Batch:
    """What is to be told next; *message* is ``None`` if the new events tell nothing. *end* is the cursor behind it."""

    message: Message | None
    end: CursorPosition


class Outbox:
    """The outbox of the target *name* in a *state* folder, held by one process; made by `open`."""

    def __init__(self, state: Folder, name: str, workspace: str) -> None:
        self._state, self._name, self._workspace = state, name, workspace
        self._path = f"{_FOLDER}/{name}.json"
        self._seen: tuple[int, int, int] | None = None

    @classmethod
    @contextmanager
    def open(cls, state: Folder, name: str, workspace: str) -> Iterator["Outbox"]:
        """Hold the outbox; raises `BindingError` if another process does."""
        state.make(_FOLDER)
        try:
            fd = state.append(f"{_FOLDER}/{name}.lock", create=True)
        except FileExistsError:
            fd = state.append(f"{_FOLDER}/{name}.lock", create=False)
        try:
            flock(fd, LOCK_EX | LOCK_NB)
            yield cls(state, name, workspace)
        except BlockingIOError:
            why = f"another process tells the target {name}; end it first"
            raise BindingError(fault("NOTIFY_FAILED", why, place=state.path)) from None
        finally:
            os.close(fd)

    def collect(self) -> Batch | None:
        """Return what is to be told, or ``None`` if nothing was recorded since; raises `LedgerError`, `OSError`."""
        place = Path(self._state.path, "workspace", LEDGER_FILE)
        try:
            found = place.stat()
        except FileNotFoundError:
            return None
        seen = found.st_dev, found.st_ino, found.st_size
        if seen == self._seen:
            return None
        cursor = self._load()
        with self._state.sub("workspace") as folder:
            events, end = self._read_back(folder, cursor)
            if end is None or end == cursor:
                self._seen = seen
                return None
            waiting, freezes = self._choose(folder, events, is_first=cursor is None)
        if not waiting and not freezes:
            return Batch(None, end)
        identity = canonical.digest(f"{self._name}\n{end.hash}".encode())[:32]
        return Batch(build_message(identity, self._workspace, waiting, freezes), end)

    def move(self, end: CursorPosition) -> None:
        """Move the cursor to *end*, durably."""
        document = {"schema_version": "v1", "seq": end.seq, "hash": end.hash}
        self._state.replace(self._path, canonical.encode(document))

    def _load(self) -> CursorPosition | None:
        try:
            found: Any = canonical.parse(self._state.read(self._path, limit=_MAX_BYTES))
            return CursorPosition(int(found["seq"]), str(found["hash"]))
        except FileNotFoundError:
            return None
        except (IntakeError, ValueError, KeyError, TypeError):
            why = "it is no cursor of notifications; remove it, and what waits is told again"
            raise LedgerError(fault("NOTIFY_FAILED", why, place=f"{self._state.path}/{self._path}")) from None

    def _read_back(
        self, folder: Folder, cursor: CursorPosition | None
    ) -> tuple[Sequence[Event], CursorPosition | None]:
        """Return the events behind *cursor* that may tell something, the oldest first, and the newest position."""
        events: list[Event] = []
        end: CursorPosition | None = None
        place = f"{folder.path}/{LEDGER_FILE}"
        with folder.open(LEDGER_FILE) as file:
            for _, raw in lines_from_end(file.fileno(), os.fstat(file.fileno()).st_size, place=place):
                if not raw.endswith(b"\n"):
                    continue  # it is being written
                is_told = any(mark in raw for mark in _MARKS)
                if cursor is not None or end is None or is_told:
                    line = split_line(raw.rstrip(b"\n"), place=place)
                    end = end or CursorPosition(line.seq, line.envelope_hash)
                    if cursor is not None and line.seq <= cursor.seq:
                        self._check(cursor, CursorPosition(line.seq, line.envelope_hash), place)
                        break
                    if line.event_type in (_REQUESTED, *_FREEZES):
                        events.append(line.event)
        return events[::-1], end

    def _check(self, cursor: CursorPosition, found: CursorPosition, place: str) -> None:
        if found != cursor:
            why = f"it is not the ledger of which {self._name} was told up to event {cursor.seq}; run: deedbook verify"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))

    def _choose(
        self, folder: Folder, events: Sequence[Event], *, is_first: bool
    ) -> tuple[Sequence[Event], Sequence[Event]]:
        """Return the requests without an answer, and the changes of freezes; at *first* what is so now."""
        asked = [each for each in events if each.type == _REQUESTED]
        freezes = [each for each in events if each.type in _FREEZES]
        if is_first:
            is_frozen = bool(freezes and freezes[-1].payload.get("freezes"))
            freezes = [each for each in freezes if each.type == _FREEZES[0]][-1:] if is_frozen else []
        if not asked:
            return (), freezes
        told, now = [], timestamp(time.time())
        with closing(ApprovalQueue.since(folder, asked[0].ts)) as queue:
            for each in asked:
                found = queue.get(str(each.payload.get("approval")))
                if found is not None and found.state(now if is_first else each.ts) == "waiting":
                    told.append(each)
        return told, freezes
