"""A ledger open for writing: entries become lines, each with the hash of the one before, written completely and once.

The common part of all ledgers. An append builds its lines, writes them with one system call, and returns: then they
survive the death of the process. The mode decides whether they survive a power loss: ``always`` syncs every append,
``boundary`` those that request it (a flusher does the rest within some 50 ms), ``os`` none.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final, NamedTuple

from deedbook.contract import Event
from deedbook.format.canonical import decode, encode
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import (
    AFTER_END,
    BARE,
    MAX_PAYLOAD,
    Entry,
    Line,
    Spans,
    is_ended,
    label,
    line_prefix,
    seal_line,
    split_label,
    split_line,
    timestamp,
)
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.sealed import Blob, Sealer
from deedbook.format.tail import find_tail, lines_from_end

from .journal import Journal, TornTail, find_unrecorded, set_aside

_END: Final = label("session.end", "runtime", None).partition(",")[0]


class Place(NamedTuple):
    """The position of a ledger: ids, the span of its first line, the next seq, the last hash, the length in bytes."""

    session_id: str
    trace_id: str
    root: str
    seq: int
    head: str
    end: int
    ended: bool = False
    latest: float = 0.0


class Chain:
    """A ledger open for writing; `append` is thread-safe. A process that inherits it by a fork cannot write it.

    The ledger owns *folder*: `close` closes it.
    """

    def __init__(
        self, folder: Folder, journal: Journal, place: Place, sealer: Sealer | None, clock: Callable[[], float]
    ) -> None:
        self.session_id, self.trace_id, self.root = place[:3]
        self.span = Spans()
        self._folder, self._journal, self._clock = folder, journal, clock
        self._prefix = line_prefix(self.session_id, self.trace_id)
        self._chain = place.seq, place.head, place.end
        self._ended, self._latest = place.ended, place.latest
        self._sealer = sealer or Sealer()
        self._inline = -1 if self._sealer.active else MAX_PAYLOAD
        self._listeners: tuple[Callable[[Event], None], ...] = ()

    # --- reading what it is -------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of events."""
        return self._chain[0]

    @property
    def head(self) -> str:
        """The envelope hash of the last line."""
        return self._chain[1]

    @property
    def place(self) -> str:
        """The path of the file."""
        return self._journal.place

    @property
    def ended(self) -> bool:
        """Whether it has its ``session.end``."""
        return self._ended

    @property
    def end(self) -> int:
        """The number of bytes of the file that this writer knows; a line ends there."""
        return self._chain[2]

    @property
    def position(self) -> tuple[int, str, int]:
        """Its `size`, `head` and `end` at one moment."""
        return self._chain

    def is_durable(self, end: int) -> bool:
        """Return whether an fdatasync covers the file up to the byte *end*."""
        return self._journal.synced >= end

    # --- writing ------------------------------------------------------------------------------------------------------

    def scrub(self, payload: bytes) -> bytes:
        """Return *payload* as it would be recorded without sealing: with the values of secrets masked."""
        return self._sealer.scrub(payload)

    def append(self, entries: Sequence[Entry], *, ts: str | None = None, durable: bool = False) -> int:
        """Write *entries* completely, in order, with one `ts` (default `now`), and return the seq of the last.

        When this returns they survive the death of the process; with *durable*, or in the mode ``always``, an fdatasync
        covers them. Raises `LedgerError`, or `IntakeError` for a payload that cannot be kept; then none of them is
        recorded, unless an fdatasync failed: then the ledger is broken, and only reopening it shows what is recorded.
        """
        stamp = ts or self.now()
        journal = self._journal
        journal.check()
        with journal.lock:
            last = self._extend(entries, stamp)
            end = journal.end
        journal.settle(end, durable)
        return last

    def now(self) -> str:
        """Return the time to be recorded: RFC 3339, UTC, milliseconds.

        If the clock has gone back, that is recorded once (``system.clock_regressed``), and the recorded time follows
        the clock.
        """
        moment = self._clock()
        if moment < self._latest:
            return self._record_clock_regression()
        self._latest = moment
        return timestamp(moment)

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Call *listener* with every further event, in order, between its write and the return of `append`.

        It must neither append nor raise: live state that differs from the ledger's fold breaks the ledger.
        """
        self._listeners = (*self._listeners, listener)

    def sync(self) -> None:
        """Return when an fdatasync covers all appended lines, unless the mode is ``os``; raises `LedgerError`."""
        self._journal.settle(self._journal.end, durable=True)

    def close(self) -> None:
        """Sync the rest, unless the mode is ``os``, and release the lock; may be called twice."""
        try:
            self._journal.close()
        finally:
            self._folder.close()

    def recover(self, torn: Sequence[TornTail]) -> None:
        """Record torn tails that were set aside, before any other event."""
        entries = [self._own("ledger.recovered", each._asdict()) for each in torn]
        if entries:
            self._extend(entries, timestamp(self._clock()))

    def _own(self, event_type: str, payload: dict[str, object]) -> Entry:
        return Entry(label(event_type, "system", None), self.span(), self.root, encode(payload))

    def _extend(self, entries: Sequence[Entry], ts: str) -> int:
        """Build lines of *entries*, write them, and advance the chain; the caller holds the journal's lock."""
        journal, inline, prefix = self._journal, self._inline, self._prefix
        seq, head, end = self._chain
        if end != journal.end:
            journal.give_up("the chain does not end where the file ends")
        ended = self._ended
        blobs: list[Blob] = []
        lines, written = [], []
        for entry in entries:
            if len(entry[3]) > inline:
                entry = self._seal(entry, blobs)  # noqa: PLW2901 - what is recorded from here on
            if ended or not seq or entry[2] is None or _END in entry[0]:
                ended = _check_order(entry, seq, ended=ended)
            line, head = seal_line(prefix, seq, ts, head, entry)
            lines.append(line)
            written.append(entry)
            seq += 1
        if blobs:
            self._write_with(blobs, b"".join(lines))
        else:
            journal.write(b"".join(lines))
        self._chain, self._ended = (seq, head, journal.end), ended
        if written and seq == len(written):
            self.root = written[0].span
        if self._listeners:
            self._notify(_event(entry, seq - len(written) + i, ts) for i, entry in enumerate(written))
        return seq - 1

    def _write_with(self, blobs: Sequence[Blob], data: bytes) -> None:
        """Write the sealed values and then the lines that name them.

        On failure neither stays, unless the ledger is broken.
        """
        begun: list[str] = []
        try:
            with translate_errors(place_of(self._folder)), self._folder.sub("sealed", create=True) as beside:
                for blob in blobs:
                    begun.append(blob.digest)
                    self._journal.write_other(beside.append(blob.digest, create=True), blob.data)
            self._journal.write(data)
        except BaseException:
            with suppress(OSError):
                for name in begun if self._journal.fault is None else ():
                    self._folder.remove(f"sealed/{name}")
            raise

    def _seal(self, entry: Entry, blobs: list[Blob]) -> Entry:
        event_type = split_label(entry.label)[0]
        if event_type in BARE and len(entry.payload) <= MAX_PAYLOAD:
            return entry
        payload, made = self._sealer(event_type, entry.payload)
        blobs += made
        return entry if payload is entry.payload else entry._replace(payload=payload, payload_hash=None)

    def _notify(self, events: Iterable[Event]) -> None:
        try:
            for event in events:
                for listener in self._listeners:
                    listener(event)
        except BaseException as problem:
            self._journal.give_up(f"live state differs from the ledger ({type(problem).__name__}: {problem})")
            if isinstance(problem, Exception):
                self._journal.check()
            raise

    def _record_clock_regression(self) -> str:
        with self._journal.lock:  # another thread may have read the clock later and recorded it first
            moment = self._clock()
            before, self._latest = self._latest, moment
        was, now = timestamp(before), timestamp(moment)
        if now < was and self.root and not self._ended:
            self.append([self._own("system.clock_regressed", {"from": was, "to": now})], ts=now)
        return now


def _check_order(entry: Entry, seq: int, *, ended: bool) -> bool:
    """Refuse an entry that is not allowed at *seq*; return whether the session has ended with it."""
    event_type = split_label(entry.label)[0]
    if ended and not event_type.startswith(AFTER_END):
        raise LedgerError(fault("SESSION_ENDED", f"the session has ended; {event_type} cannot be recorded any more"))
    if (entry.parent is None) is not (seq == 0):
        why = f"{event_type} at {seq}: the first event, and no other, has no parent"
        raise LedgerError(fault("LEDGER_BROKEN", why))
    return ended or event_type == "session.end"


def _event(entry: Entry, seq: int, ts: str) -> Event:
    event_type, actor, principal = split_label(entry.label)
    return Event(seq, event_type, actor, principal, entry.span, entry.parent, ts, decode(entry.payload))


# --- opening ----------------------------------------------------------------------------------------------------------


def find_position(folder: Folder, fd: int) -> tuple[Place, list[TornTail]]:
    """Find the position of the ledger behind *fd*, from its first and its last line; set a torn tail aside.

    The caller holds its lock. Returns the tails that were set aside and not recorded yet, by this recovery or by an
    earlier one that was killed. A file without a whole line is ``SESSION_NOT_FOUND``: nothing was recorded in it.
    """
    place = place_of(folder)
    tail = find_tail(fd, place=place)
    if not tail.end:
        raise LedgerError(fault("SESSION_NOT_FOUND", "no event was ever recorded here", place=place))
    first, last = first_line(fd, place), split_line(tail.last, place=place)
    if not last.sound or last[:2] != first[:2] or first.seq or first.parent_span_id:
        raise LedgerError(fault("LEDGER_UNSOUND", "its last line is not what was written; verify it", place=place))
    types = (split_line(line, place=place).event_type for _, line in lines_from_end(fd, tail.end, place=place))
    stands = Place(
        *first[:2], first.span_id, last.seq + 1, last.envelope_hash, tail.end, is_ended(types), _moment(last)
    )
    return stands, [set_aside(folder, fd, tail)] if tail.torn else find_unrecorded(folder, tail.end)


def first_line(fd: int, place: str) -> Line:
    """Read the first line of the ledger behind *fd*; it has one."""
    line, newline, _ = os.pread(fd, 8192, 0).partition(b"\n")
    if not newline:
        line = os.pread(fd, MAX_PAYLOAD + 8192, 0).partition(b"\n")[0]
    return split_line(line, place=place)


def _moment(line: Line) -> float:
    try:
        return datetime.fromisoformat(line.ts).timestamp()
    except ValueError:
        return 0.0


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Turn what the system refuses into `LedgerError`, since without a ledger nothing may be done."""
    try:
        yield
    except OSError as problem:
        why = f"cannot be written ({problem.strerror or problem}); see to the folder and the disk, then try again"
        raise LedgerError(fault("LEDGER_BROKEN", why, retryable=True, place=place)) from problem


def place_of(folder: Folder) -> str:
    """Return where the ledger in *folder* is, for messages."""
    return f"{folder.path}/{LEDGER_FILE}"
