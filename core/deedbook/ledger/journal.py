"""One append-only file, held open by its only writer: whole writes, shared syncs, a torn tail set aside.

Nothing here knows what a line means. The promises, in the order in which they are kept:

1. a write is whole or it never was: what fails half-way is cut back, and if that fails the journal is broken. A file
   that was removed takes no write;
2. `settle` and `commit` return after an fdatasync that began after the write, shared by all who wait for one;
3. after a failed fdatasync nothing is believed any more: the journal stays broken until it is opened again.
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from typing import Final, Literal, NamedTuple, NoReturn, TypeAlias

from deedbook.format.canonical import digest
from deedbook.format.errors import DomainError, LedgerError, fault
from deedbook.format.files import Folder
from deedbook.format.tail import MAX_TAIL, Tail

Durability: TypeAlias = Literal["always", "boundary", "os"]
FLUSH_SECONDS: Final = 0.05
"""How long, in ``boundary``, an append that did not ask for durability may wait for its fdatasync."""
SYNC_SECONDS: Final = 60.0
"""How long a thread waits for a write or an fdatasync of another thread; after that the journal is broken."""
DATASYNC: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class TornTail(NamedTuple):
    """A torn tail that was set aside: its offset, its length, its SHA-256, and the file that keeps it."""

    offset: int
    bytes: int
    sha256: str
    kept: str


class Journal:
    """The file behind *fd*, which it owns: `end` bytes are known to be whole, `synced` of them durable.

    Hold `lock` around `write` and everything that must agree with it; call `settle` after the lock is released.
    """

    def __init__(
        self, fd: int, end: int, *, place: str, durability: Durability, fdatasync: Callable[[int], None]
    ) -> None:
        self.fd, self.end, self.place = fd, end, place
        self.synced = 0
        self.lock = threading.Lock()
        self.fault: DomainError | None = None
        self._durability = durability
        self._fdatasync = fdatasync
        self._turn = threading.Condition(threading.Lock())
        self._syncing = self._left = self._stuck = False
        self._flusher = _Flusher(self)
        self._pid = os.getpid()
        self._told = False

    # --- writing ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `LedgerError` if nothing may be written: broken, closed, or inherited through a fork."""
        if os.getpid() != self._pid:
            why = "a forked process may not write its parent's ledger; open one of its own"
            raise LedgerError(fault("LEDGER_BROKEN", why, place=self.place))
        if self.fault:
            self._refuse(self.fault)

    def write(self, data: bytes) -> None:
        """Append *data* completely; the caller holds `lock`, and called `check` before.

        On `LedgerError` the file is unchanged, or broken for good.
        """
        if self.fault:
            self._refuse(self.fault)
        try:
            if is_replaced(self.fd):
                self.give_up("its file was removed")
                self.check()
            done = os.write(self.fd, data)
            if done != len(data):
                _write_all(self.fd, memoryview(data)[done:])
            self.end += len(data)
        except OSError as problem:
            self._cut_back()
            why = f"not recorded ({problem.strerror or problem}); the ledger is unchanged, so try again later"
            raise LedgerError(fault("LEDGER_BROKEN", why, retryable=True, place=self.place)) from problem
        except LedgerError:
            raise
        except BaseException:
            self._cut_back()
            raise

    def write_other(self, fd: int, data: bytes) -> None:
        """Write *data* to another new file, durably unless the mode is ``os``, and close it; raises `OSError`."""
        try:
            _write_all(fd, memoryview(data))
            if self._durability != "os":
                self._fdatasync(fd)
        finally:
            os.close(fd)

    def _cut_back(self) -> None:
        """Remove what a failed write left.

        The journal counts as broken meanwhile, so that a signal handler cannot append to half a line.
        """
        self.give_up("a write failed half-way and could not be undone")
        with suppress(OSError):
            os.ftruncate(self.fd, self.end)
            self.fault = None

    def give_up(self, why: str) -> None:
        """Refuse all further writes, because of *why*."""
        self.fault = fault("LEDGER_BROKEN", f"{why}; reopen the ledger and verify it", place=self.place)

    def _refuse(self, why: DomainError) -> NoReturn:
        self._told = True
        raise LedgerError(why)

    # --- durability ---------------------------------------------------------------------------------------------------

    def settle(self, end: int, durable: bool) -> None:
        """Make the file durable up to *end*, as the mode or *durable* requires."""
        if self._durability == "always" or (durable and self._durability == "boundary"):
            self.commit(end)
        elif self._durability == "boundary" and self._flusher.idle:
            self._flusher.rouse()

    def commit(self, end: int) -> None:
        """Return after an fdatasync that covers *end*: lead one, or wait for the one of another thread."""
        with self._turn:
            while self._syncing and self.synced < end and not self.fault:
                self._wait()
            if self.synced >= end:
                return
            self.check()
            self._syncing = True
        try:
            self._lead()
        finally:
            with self._turn:
                self._syncing = False
                if self._left:
                    self._give_back()
                self._turn.notify_all()

    def _wait(self) -> None:
        """Wait until another thread's fdatasync ends; the caller holds `_turn`, and checks for a fault afterwards."""
        if not self._turn.wait(SYNC_SECONDS):
            self.give_up(_timeout_message("synced"))

    def _lead(self) -> None:
        end = self.end
        try:
            self._fdatasync(self.fd)
        except OSError as problem:
            self.give_up(f"the disk did not take what was written ({problem.strerror or problem})")
            self.check()
        self.synced = end

    def flush(self) -> None:
        """Sync everything that was written; the next append, or `close`, reports a failure."""
        if self.fault:
            return
        try:
            self.commit(self.end)
        except LedgerError:
            self._told = False

    def follow(self, fd: int, end: int) -> None:
        """Continue with the file behind *fd*, which replaced the old one; the caller holds all locks."""
        with self._turn:
            while self._syncing and not self.fault:
                self._wait()
            if self.fault:
                os.close(fd)
                self._refuse(self.fault)
            os.dup2(fd, self.fd, inheritable=False)
            os.close(fd)
            self.end, self.synced = end, 0

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Sync the rest, unless the mode is ``os``, and release the file and its lock; may be called twice.

        Raises `LedgerError`, also if another thread still writes or syncs after `SYNC_SECONDS`. The file is then
        released when that sync ends, or with the process.
        """
        if self.fd < 0 or self._left:
            return
        if os.getpid() != self._pid:
            self._give_back()
            return
        try:
            self._leave()
        finally:
            with self._turn:
                self._left = True
                if not self._syncing and not self._stuck:
                    self._give_back()

    def _leave(self) -> None:
        """Sync, and wait until no other thread uses the descriptor."""
        if not self._flusher.stop():
            self.give_up(_timeout_message("synced"))
        if self._durability != "os":
            self.flush()
        failed = None if self._told else self.fault
        if not self.lock.acquire(timeout=SYNC_SECONDS):
            self._stuck = True
            self.give_up(_timeout_message("written"))
            self.check()
        self.give_up("it is closed")
        self.lock.release()
        with self._turn:
            if not failed and not self._turn.wait_for(lambda: not self._syncing, SYNC_SECONDS):
                self.give_up(_timeout_message("synced"))
                failed = self.fault
        if failed:
            raise LedgerError(failed)

    def _give_back(self) -> None:
        fd, self.fd = self.fd, -1
        os.close(fd)


def _timeout_message(what: str) -> str:
    return f"an event is still being {what} after {SYNC_SECONDS:g} s, see to the disk"


def _write_all(fd: int, rest: memoryview) -> None:
    while rest:
        done = os.write(fd, rest)
        if not done:
            raise OSError(errno.EIO, "the file takes no more bytes")
        rest = rest[done:]


class _Flusher:
    """A daemon thread, started at the first need, that syncs a journal soon after a write that did not wait for it."""

    def __init__(self, journal: Journal) -> None:
        self.idle = True
        self._journal = journal
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def rouse(self) -> None:
        with self._journal.lock:
            self.idle = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deedbook-flusher", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # no thread can be started: the interpreter ends, or a limit is reached
                    self.idle, self._thread = True, None
        if self._thread is None:
            self._journal.commit(self._journal.end)
        self._wake.set()

    def stop(self) -> bool:
        """Stop the thread; return whether it has ended."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(SYNC_SECONDS)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        journal = self._journal
        while not self._stop.is_set():
            self._wake.wait()
            self._stop.wait(FLUSH_SECONDS)
            journal.flush()
            with journal.lock:
                if journal.synced >= journal.end or journal.fault:
                    self._wake.clear()
                    self.idle = True


# --- locks ------------------------------------------------------------------------------------------------------------


def acquire(fd: int, *, place: str, seconds: float, shared: bool = False) -> None:
    """Take the file's lock, which ends with its holder; after *seconds* raise ``LEDGER_LOCKED``."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return flock(fd, (LOCK_SH if shared else LOCK_EX) | LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                why = "another writer has it open; wait until it is done"
                raise LedgerError(fault("LEDGER_LOCKED", why, retryable=True, place=place)) from None
        time.sleep(0.001)


def is_replaced(fd: int) -> bool:
    """Return whether the file has no name any more: another one replaced it, or it was removed."""
    return os.fstat(fd).st_nlink == 0


def release(fd: int) -> None:
    """Release the file's lock."""
    flock(fd, LOCK_UN)


# --- the tail ---------------------------------------------------------------------------------------------------------


def set_aside(folder: Folder, fd: int, tail: Tail) -> TornTail:
    """Copy the torn bytes to a file beside the ledger, durably, and then cut them off."""
    raw = os.pread(fd, tail.torn, tail.end)
    found = digest(raw)
    kept = f".torn-{tail.end}-{found[:16]}"
    folder.replace(kept, raw)
    os.ftruncate(fd, tail.end)
    os.fsync(fd)
    return TornTail(tail.end, len(raw), found, kept)


def find_unrecorded(folder: Folder, end: int) -> list[TornTail]:
    """List torn tails that were cut off at *end* by a recovery that died before it recorded them."""
    found = []
    for name, is_folder, size in folder.scan():
        if name.startswith(f".torn-{end}-") and not is_folder and size <= MAX_TAIL:
            raw = folder.read(name, limit=MAX_TAIL)
            found.append(TornTail(end, len(raw), digest(raw), name))
    return found
