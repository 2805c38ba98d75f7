"""The only writers of ledgers: a session's ledger has one, the workspace's has many.

Both write the same lines in the same way (`chain`); here they are created, reopened, locked and recovered.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final, Self

from deedbook.contract import Object
from deedbook.format.canonical import decode, digest, encode
from deedbook.format.errors import LedgerError, SourceError, fault
from deedbook.format.events import (
    FORMAT,
    SESSION_ID,
    TRACE_ID,
    Entry,
    first_hash,
    first_workspace_hash,
    label,
    new_id,
    split_line,
    timestamp,
)
from deedbook.format.files import Folder
from deedbook.format.paths import CHECKPOINT_FILE, LEDGER_FILE
from deedbook.format.sealed import Sealer, open_values
from deedbook.format.tail import find_tail, lines_from_end

from .chain import Chain, Place, find_position, first_line, place_of, translate_errors
from .journal import DATASYNC, Durability, Journal, TornTail, acquire, is_replaced, release, set_aside

LOCK_SECONDS: Final = 0.25
"""How long a session waits for its lock; a check whether it is free holds it for less."""
TURN_SECONDS: Final = 10.0
"""How long a writer of the workspace ledger waits for its turn."""

_BLOCK: Final = 256 * 1024


class Ledger(Chain):
    """A session's ledger: one file, and one writer while it is open. Made by `create` or `reopen`."""

    @classmethod
    def create(
        cls,
        folder: Folder,
        session_id: str,
        trace_id: str,
        *,
        durability: Durability = "boundary",
        sealer: Sealer | None = None,
        clock: Callable[[], float] = time.time,
        fdatasync: Callable[[int], None] = DATASYNC,
    ) -> Self:
        """Create the ledger of a new session in its own *folder*; the first appended entry is its root.

        Raises `LedgerError`: the folder has a ledger already, or cannot be written.
        """
        if not SESSION_ID.fullmatch(session_id) or not TRACE_ID.fullmatch(trace_id):
            why = f"session id {session_id[:200]!r} or trace id {trace_id[:200]!r} is not in the format"
            raise LedgerError(fault("LEDGER_BROKEN", why))
        with _lock_file(folder, create=True) as fd:
            journal = Journal(fd, 0, place=place_of(folder), durability=durability, fdatasync=fdatasync)
        place = Place(session_id, trace_id, "", 0, first_hash(session_id), 0)
        return cls(folder, journal, place, sealer, clock)

    @classmethod
    def reopen(
        cls,
        folder: Folder,
        *,
        durability: Durability = "boundary",
        sealer: Sealer | None = None,
        clock: Callable[[], float] = time.time,
        fdatasync: Callable[[int], None] = DATASYNC,
    ) -> Self:
        """Reopen the ledger in *folder* after checking its last line; the time does not depend on its size.

        A torn tail is kept aside and recorded (``ledger.recovered``). Raises `LedgerError`: ``LEDGER_LOCKED`` while
        another writer has it, ``LEDGER_UNSOUND`` if the last line is invalid, ``SESSION_NOT_FOUND``.
        """
        with _lock_file(folder, create=False) as fd:
            place, torn = find_position(folder, fd)
            journal = Journal(fd, place.end, place=place_of(folder), durability=durability, fdatasync=fdatasync)
            ledger = cls(folder, journal, place, sealer, clock)
            ledger.recover(torn)
            if torn:
                journal.settle(journal.end, durable=True)
        return ledger


@contextmanager
def _lock_file(folder: Folder, *, create: bool) -> Iterator[int]:
    """Open the ledger's file and take its lock; both stay with the descriptor, unless the block fails."""
    place = place_of(folder)
    with translate_errors(place):
        try:
            fd = _present(folder, partial(folder.append, LEDGER_FILE, create=create), LOCK_SECONDS)
        except FileExistsError:
            raise LedgerError(fault("LEDGER_BROKEN", "there is a ledger already; reopen it", place=place)) from None
        except FileNotFoundError:
            raise LedgerError(fault("SESSION_NOT_FOUND", "there is no ledger here", place=place)) from None
        try:
            yield fd
        except BaseException:
            os.close(fd)
            raise


def _present(folder: Folder, begin: Callable[[], int], seconds: float) -> int:
    """Return the ledger's file under its lock: the file that has the name now, not a replaced one."""
    while True:
        fd = begin()
        try:
            acquire(fd, place=place_of(folder), seconds=seconds)
            if not is_replaced(fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        begin = partial(folder.append, LEDGER_FILE, create=False)


# --- the workspace ----------------------------------------------------------------------------------------------------


class WorkspaceLedger(Chain):
    """The workspace's ledger: many processes write it; each append takes the file's lock and reads new lines first.

    It holds everything that outlives a session: charters, session heads, later approvals and memory. Made by `open`.
    *moves* counts how often another file replaced its file, in which the same lines end elsewhere.
    """

    moves = 0

    @classmethod
    def open(
        cls,
        state: Folder,
        *,
        workspace: str,
        kernel: str = "unknown",
        durability: Durability = "boundary",
        sealer: Sealer | None = None,
        clock: Callable[[], float] = time.time,
        fdatasync: Callable[[int], None] = DATASYNC,
    ) -> Self:
        """Open the ledger of *workspace* (its name) in its *state* folder; the first process creates it.

        Raises `SourceError` (``STATE_IN_USE``) if the folder belongs to another workspace, and `LedgerError`.
        """
        with translate_errors(state.path):
            folder = state.sub("workspace", create=True)
        place = place_of(folder)
        with translate_errors(place):
            fd = _present(folder, partial(_shared_file, folder), TURN_SECONDS)
        try:
            with translate_errors(place), _turn(fd, place):
                stands, torn = _stand(folder, fd, workspace, state)
                journal = Journal(fd, stands.end, place=place, durability=durability, fdatasync=fdatasync)
                ledger = cls(folder, journal, stands, sealer, clock)
                ledger._begin(torn, state, {"format": FORMAT, "kernel": kernel, "workspace": workspace})
        except BaseException:
            os.close(fd)
            raise
        return ledger

    def append(
        self,
        entries: Sequence[Entry] | Callable[[], Sequence[Entry]],
        *,
        ts: str | None = None,
        durable: bool = False,
        check: Callable[[], None] | None = None,
    ) -> int:
        """Append like `Chain.append`, after reading the lines of other processes, which listeners also receive.

        *check* is called under the lock, and may raise: then nothing is recorded. If *entries* depend on the ledger's
        content, pass a function, which is called under the lock as well. Raises `LedgerError`: also ``LEDGER_LOCKED``
        if the lock is not free within `TURN_SECONDS`.
        """
        stamp = ts or self.now()
        with self.exclusive():
            if check:
                check()
            last = self._extend(entries() if callable(entries) else entries, stamp)
            end = self._journal.end
        self._journal.settle(end, durable)
        return last

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other processes from writing, after reading what they have written; raises as `append` does."""
        journal = self._journal
        journal.check()
        with journal.lock, translate_errors(journal.place), _turn(journal.fd, journal.place):
            if is_replaced(journal.fd):
                self._move()
            self._catch_up()
            yield

    def since(self, start: int) -> Iterator[bytes]:
        """Yield the lines from the byte *start* on, where one begins, up to the last that this writer knows."""
        self._journal.check()
        return _lines(self._journal.fd, start, self._journal.end, self.place)

    def backwards(self) -> Iterator[tuple[int, bytes]]:
        """Yield offset and bytes of the lines that this writer knows, the last one first."""
        self._journal.check()
        with translate_errors(self.place):
            yield from lines_from_end(self._journal.fd, self._journal.end, place=self.place)

    def _begin(self, torn: Sequence[TornTail], state: Folder, root: Object) -> None:
        if not self.size:
            entry = Entry(label("ledger.created", "runtime", None), self.span(), None, encode(dict(root)))
            self._extend([entry], timestamp(self._clock()))
            self._folder.sync()  # the process that made the folders may have died before their names were durable
            state.sync()
        self.recover(torn)
        self._journal.settle(self._journal.end, durable=True)

    def keep(self, session: str, torn: bytes) -> TornTail:
        """Keep the bytes of the first write of *session*, which is no event, in a file beside this ledger; record that.

        For a session that never began: its own ledger has no line that the record could follow. Raises `LedgerError`.
        """
        found = digest(torn)
        kept = TornTail(0, len(torn), found, f".torn-session-{session}-{found[:16]}")
        with translate_errors(self.place):
            self._folder.replace(kept.kept, torn)
        self.append([self._own("ledger.recovered", kept._asdict())], durable=True)
        return kept

    def end_of(self, lines: int) -> int:
        """Return the end of line number *lines*, in bytes of the file; the caller keeps others from writing."""
        return _end_of(self._journal.fd, lines)[0]

    def _move(self) -> None:
        """Continue with the file that replaced this one: the same lines, of which some payloads may be excised."""
        seq, head, _ = self._chain
        fd, place = (
            _present(self._folder, partial(self._folder.append, LEDGER_FILE, create=False), TURN_SECONDS),
            self.place,
        )
        end, last = _end_of(fd, seq)
        if split_line(last, place=place).envelope_hash != head:
            os.close(fd)
            raise LedgerError(fault("LEDGER_UNSOUND", "another file took its place; verify it", place=place))
        self._journal.follow(fd, end)
        self._chain = seq, head, end
        self.moves += 1

    def _catch_up(self) -> None:
        """Read and check the lines added since; an incomplete line of a killed writer is set aside."""
        journal = self._journal
        if os.fstat(journal.fd).st_size == journal.end:
            return
        tail = find_tail(journal.fd, place=journal.place)
        if tail.end < journal.end:
            raise LedgerError(fault("LEDGER_UNSOUND", "it was cut since it was read; verify it", place=journal.place))
        for line in _lines(journal.fd, journal.end, tail.end, journal.place):
            self._take_over(line)
        if tail.torn:
            self.recover([set_aside(self._folder, journal.fd, tail)])

    def _take_over(self, raw: bytes) -> None:
        seq, head, end = self._chain
        line = split_line(raw, place=self._journal.place)
        if not line.sound or line[:3] != (self.session_id, self.trace_id, seq) or line.prev_envelope_hash != head:
            why = f"event {seq}, which another process added, is not what was written; verify it"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=self._journal.place))
        self._journal.end = end + len(raw)
        self._chain = seq + 1, line.envelope_hash, self._journal.end
        self._notify([line.event])


def _end_of(fd: int, lines: int) -> tuple[int, bytes]:
    """Return the end of line number *lines*, and its bytes; empty if there is no such line."""
    end, last = 0, b""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        for last in islice(file, lines):
            end += len(last)
    return end, last


def _shared_file(folder: Folder) -> int:
    try:
        return folder.append(LEDGER_FILE, create=True)
    except FileExistsError:
        return folder.append(LEDGER_FILE, create=False)


@contextmanager
def _turn(fd: int, place: str) -> Iterator[None]:
    acquire(fd, place=place, seconds=TURN_SECONDS)
    try:
        yield
    finally:
        release(fd)


def _stand(folder: Folder, fd: int, workspace: str, state: Folder) -> tuple[Place, Sequence[TornTail]]:
    tail = find_tail(fd, place=place_of(folder))
    first = first_line(fd, place_of(folder)) if tail.end else None
    if state.exists(CHECKPOINT_FILE):
        from .newest import refuse_below

        refuse_below(state, fd, tail.end, first.session_id if first else "")  # before anything of it is set aside
    if not first:
        name = f"ws-{new_id()}"
        torn = [set_aside(folder, fd, tail)] if tail.torn else []
        return Place(name, new_id(), "", 0, first_workspace_hash(name), 0), torn
    owner = open_values(folder, decode(first.payload)).get("workspace")
    if owner != workspace:
        why = f"the state folder belongs to the workspace {owner!r}; choose another folder with `state:`"
        raise SourceError(fault("STATE_IN_USE", why, place=folder.path))
    return find_position(folder, fd)


def _lines(fd: int, start: int, end: int, place: str) -> Iterator[bytes]:
    """Yield the lines between two bytes of a file without moving its position: threads may read at the same time."""
    held = b""
    while start < end:
        with translate_errors(place):
            block = os.pread(fd, min(end - start, _BLOCK), start)
        if not block:
            raise LedgerError(fault("LEDGER_UNSOUND", "it was cut since it was read; verify it", place=place))
        *lines, held = (held + block).split(b"\n")
        start += len(block)
        for line in lines:
            yield line + b"\n"
