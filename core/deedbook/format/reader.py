"""Read ledgers for folds and listings: no lock, no repair, no verification.

A reader beside a writer sees whole lines only: it stops at the last newline. `verify` checks what a file claims.
"""

import os
import re
from collections.abc import Callable, Iterator
from fcntl import LOCK_NB, LOCK_SH, flock
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias

import attrs

from deedbook.contract import Event

from .canonical import MAX_BYTES
from .errors import DeedbookError, LedgerError, fault
from .events import AFTER_END, SESSION_ID, Line, split_line
from .files import Folder
from .paths import LEDGER_FILE
from .tail import find_tail, lines_from_end

State: TypeAlias = Literal["open", "ended", "interrupted", "suspended", "empty", "damaged"]

SEALED: Final = "sealed"
"""The folder of a ledger's sealed values, beside it."""

_VALUE: Final = re.compile(r"[0-9a-f]{64}")
LONGEST: Final = MAX_BYTES + 65536


@attrs.frozen
class SessionSummary:
    """A session in a listing: the times of its first and last event, their number, the last hash.

    *state*: ``open`` while a writer holds it, ``ended``, ``interrupted`` (no end and no writer), ``suspended`` (its run
    waits to be resumed), ``empty`` (no event was recorded), ``damaged``. *torn* counts the bytes after the last line.
    *waits* says why a suspended session waits, and *approval* is the request that a person must answer, if any.
    """

    id: str
    state: State
    started: str = ""
    latest: str = ""
    events: int = 0
    head: str = ""
    torn: int = 0
    waits: str = ""
    approval: str = ""


def read(source: str | Path | Folder) -> Iterator[Event]:
    """Yield the events of a ledger of the present form: its file, or its folder.

    Lines are split on the newline alone; bytes after the last one are not read. A whole line that is no event raises
    `LedgerError` (``LEDGER_UNSOUND``), a missing file `FileNotFoundError`.
    """
    if isinstance(source, Folder):
        yield from _events(source.open(LEDGER_FILE), f"{source.path}/{LEDGER_FILE}")
        return
    path = Path(source)
    path = path / LEDGER_FILE if path.is_dir() else path
    with Folder.at(path.parent) as folder:
        yield from _events(folder.open(path.name), str(path))


class Follower:
    """Reads the lines of a ledger's *file* as they are added, from the byte *start* on, where a line begins.

    Each line's hashes and its link to the line before are checked; with *gaps*, excised payloads are accepted. *head*
    is the hash before the first line, if it is known: a hash, or a function that computes it from the ledger's id.
    Checking for new lines costs one `fstat`. The follower closes the file.
    """

    def __init__(
        self, file: BinaryIO, *, start: int = 0, place: str = "", gaps: bool = False,
        head: str | Callable[[str], str] | None = None,
    ) -> None:  # fmt: skip
        self._file, self._end, self._place, self._gaps = file, start, place, gaps
        self._head = head

    def __call__(self) -> Iterator[Line]:
        """Yield the lines added since; raises `LedgerError` (``LEDGER_UNSOUND``) for an invalid line."""
        seen = os.fstat(self._file.fileno())
        if not seen.st_nlink and self._place:
            self._move()
        elif seen.st_size <= self._end:
            return
        self._file.seek(self._end)
        for raw in read_lines(self._file, self._place):
            line = split_line(raw, place=self._place)
            sound = line.sound or (self._gaps and line.is_excised)
            before = self._head(line.session_id) if callable(self._head) else self._head
            if not sound or before not in (None, line.prev_envelope_hash):
                why = f"event {line.seq} is not what was written; verify it"
                raise LedgerError(fault("LEDGER_UNSOUND", why, place=self._place))
            self._end, self._head = self._end + len(raw), line.envelope_hash
            yield line

    def _move(self) -> None:
        """Continue in the file that replaced this one: it has the same lines, some of them shorter."""
        self._file.seek(0)
        lines = 0
        while self._file.tell() < self._end:
            self._file.readline()
            lines += 1
        place = Path(self._place)
        with Folder.at(place.parent) as folder:
            file = folder.open(place.name)
        self._file.close()
        self._file, self._end = file, sum(map(len, islice(file, lines)))

    @property
    def end(self) -> int:
        """The end of the last yielded line, in bytes of the file."""
        return self._end

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _events(file: BinaryIO, name: str) -> Iterator[Event]:
    with file:
        for seq, raw in enumerate(read_lines(file, name)):
            yield _event(raw, f"{name}:{seq + 1}")


def _event(raw: bytes, place: str) -> Event:
    line = split_line(raw, place=place)
    try:
        return line.event
    except ValueError:
        raise LedgerError(fault("LEDGER_UNSOUND", "a payload that is no JSON; verify the file", place=place)) from None


def read_lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the whole lines of *file*, which errors call *name*; raises `LedgerError` for a line that is too long."""
    while (line := file.readline(LONGEST)).endswith(b"\n"):
        yield line
    if len(line) == LONGEST and any(b"\n" in more for more in iter(lambda: file.read(LONGEST), b"")):
        raise LedgerError(fault("LEDGER_UNSOUND", f"a line of more than {LONGEST} bytes; verify the file", place=name))


def list_sessions(state: Folder) -> list[SessionSummary]:
    """List the sessions of a state folder, the oldest first; the cost of each does not depend on its length."""
    try:
        found = state.scan("sessions")
    except FileNotFoundError:
        return []
    names = [name for name, folder, _ in found if folder and SESSION_ID.fullmatch(name)]
    return sorted((summarise(state, name) for name in names), key=lambda each: (each.started, each.id))


def list_interrupted(state: Folder) -> list[str]:
    """Return the ids of the sessions of a state folder that have no end and no writer, the oldest first."""
    return [each.id for each in list_sessions(state) if each.state == "interrupted"]


def is_open(state: Folder, session: str) -> bool:
    """Return whether *session* of a state folder has a writer now; ``False`` for a missing session."""
    if not SESSION_ID.fullmatch(session):
        return False
    try:
        with state.open(f"sessions/{session}/{LEDGER_FILE}") as file:
            return _probe_lock(file.fileno()) == "open"
    except FileNotFoundError:
        return False


def has_events(folder: Folder) -> bool:
    """Return whether a session's *folder* holds an event; an incomplete first line is none.

    Raises `LedgerError` (``LEDGER_UNSOUND``) if there are more bytes than one write can have left.
    """
    try:
        with folder.open(LEDGER_FILE) as file:
            return bool(find_tail(file.fileno(), place=f"{folder.path}/{LEDGER_FILE}").end)
    except FileNotFoundError:
        return False


def find_strays(folder: Folder) -> list[str]:
    """Return the content of a session's *folder* that an unstarted session cannot have left.

    It may have left its ledger's file, and sealed values of an event that was not written.
    """
    names = sorted({place.name for place in Path(folder.path).iterdir()} - {LEDGER_FILE})
    sealed = folder.kinds(SEALED) if SEALED in names else ()
    only_values = all(kind == "-" and _VALUE.fullmatch(name) for name, kind in sealed)
    return [name for name in names if name != SEALED or not only_values]


def summarise(state: Folder, name: str) -> SessionSummary:
    """Return the session *name* of a state folder as `list_sessions` lists it."""
    place = f"sessions/{name}/{LEDGER_FILE}"
    try:
        with state.open(place) as file:
            found = _summarise_file(file, name, f"{state.path}/{place}")
    except FileNotFoundError:
        found = SessionSummary(name, "empty")
    except (DeedbookError, OSError):
        return SessionSummary(name, "damaged")
    begun = found.events or found.state == "open"
    return found if begun or not _has_strays(state, name) else SessionSummary(name, "damaged")


def _has_strays(state: Folder, name: str) -> bool:
    try:
        with state.sub(f"sessions/{name}") as folder:
            return bool(find_strays(folder))
    except (DeedbookError, OSError):
        return True


def _summarise_file(file: BinaryIO, name: str, place: str) -> SessionSummary:
    fd = file.fileno()
    tail = find_tail(fd, place=place)
    if not tail.end:
        state = _probe_lock(fd)
        return SessionSummary(name, state if tail.torn or state == "open" else "empty", torn=tail.torn)
    first = split_line(file.readline(), place=place)
    last = split_line(tail.last, place=place)
    final = _final_line(fd, tail.end, place)
    found = SessionSummary(name, "ended", first.ts, last.ts, last.seq + 1, last.envelope_hash, tail.torn)
    if final is not None and final.event_type == "session.end":
        return found
    state = _probe_lock(fd)
    if final is None or state != "interrupted" or final.event_type != "session.suspended":
        return attrs.evolve(found, state=state)
    waits, approval = _waits_for(final)
    return attrs.evolve(found, state="suspended", waits=waits, approval=approval)


def _waits_for(suspended: Line) -> tuple[str, str]:
    """Return why a session waits, and for which request; empty texts for values that cannot be read here."""
    try:
        payload = suspended.event.payload
    except ValueError:
        return "", ""
    reason, approval = payload.get("reason"), payload.get("approval")
    return reason if isinstance(reason, str) else "", approval if isinstance(approval, str) else ""


def _final_line(fd: int, end: int, place: str) -> Line | None:
    """Return the last line that is no amendment."""
    lines = (split_line(line, place=place) for _, line in lines_from_end(fd, end, place=place))
    return next((line for line in lines if not line.event_type.startswith(AFTER_END)), None)


def _probe_lock(fd: int) -> State:
    """Return whether a writer holds the lock, by taking it briefly in the shared form."""
    try:
        flock(fd, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return "open"
    return "interrupted"
