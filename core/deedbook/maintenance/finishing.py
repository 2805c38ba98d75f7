"""Finish recorded erasures and excisions: delete sealed files, and remove payloads from their lines.

The event is written first and is durable; then the work is done here, as often as needed: after a crash, the next
process that opens the ledger for this, or a recovery, finishes it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import attrs

from deedbook.format.canonical import decode
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import Line, excised_form, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import DRAFT, LEDGER_FILE
from deedbook.format.sealed import digests_in
from deedbook.ledger.chain import place_of
from deedbook.ledger.journal import acquire, is_replaced
from deedbook.ledger.ledger import LOCK_SECONDS, TURN_SECONDS
from deedbook.plugins.features import Features

FOLDER: Final = "unfinished"
"""The folder of a state folder with a file for each ledger with unfinished work."""
_PROMISES: Final = (b',"event_type":"payload.erased"', b',"event_type":"ledger.excised"')


@attrs.define
class CleanupResult:
    """The result: the digests of deleted sealed values, and the seqs of removed payloads."""

    erased: list[str] = attrs.field(factory=list)
    excised: list[int] = attrs.field(factory=list)


@contextmanager
def pending_cleanup(state: Folder, name: str) -> Iterator[None]:
    """Mark the ledger *name*, durably, as unfinished until this block ends without an error."""
    state.replace(f"{FOLDER}/{name}", b"")
    yield
    with suppress(FileNotFoundError):
        state.remove(f"{FOLDER}/{name}")


def list_unfinished(state: Folder) -> list[str]:
    """Return the names of ledgers whose erasure or excision may be unfinished."""
    try:
        return [found.name for found in state.scan(FOLDER) if not found.folder and found.name != DRAFT]
    except FileNotFoundError:
        return []


def finish_all(state: Folder) -> dict[str, CleanupResult]:
    """Finish what can be finished now in a *state* folder; a ledger with a writer is left for the next time."""
    done = {}
    for name in list_unfinished(state):
        with suppress(LedgerError), pending_cleanup(state, name):
            done[name] = finish(state, name)
    return done


def finish(state: Folder, name: str) -> CleanupResult:
    """Do all recorded and unfinished work of the ledger *name*; raises `LedgerError` or `OSError`.

    *name* is a session's id, or ``workspace``. ``LEDGER_LOCKED`` while the ledger has a writer.
    """
    path = name if name == "workspace" else f"sessions/{name}"
    try:
        folder = state.sub(path)
    except FileNotFoundError:
        raise LedgerError(fault("SESSION_NOT_FOUND", f"there is no ledger {name!r}")) from None
    with folder, _lock_file(folder, TURN_SECONDS if name == "workspace" else LOCK_SECONDS) as fd:
        done = _finish_file(folder, fd)
    if done.excised:
        Features.load().demand("payload_removed", state=state, name=name)
    return done


@contextmanager
def _lock_file(folder: Folder, seconds: float) -> Iterator[int]:
    """Open the ledger's file under its lock: the file that has the name now, not a replaced one."""
    while True:
        fd = folder.append(LEDGER_FILE, create=False)
        try:
            acquire(fd, place=place_of(folder), seconds=seconds)
            if not is_replaced(fd):
                yield fd
                return
        finally:
            os.close(fd)


def _finish_file(folder: Folder, fd: int) -> CleanupResult:
    place, done = place_of(folder), CleanupResult()
    erased, wanted = _promises(fd, place)
    standing: dict[int, Line] = {}
    if wanted:
        for seq, raw in _lines(fd):
            if seq in wanted and not raw.endswith(excised_form(wanted[seq]) + b"}\n"):
                standing[seq] = _sound(raw, wanted[seq], place)
    if standing:
        _renew(folder, fd, standing)
    done.excised = sorted(standing)
    left = {*erased, *(digest for line in standing.values() for digest in digests_in(decode(line.payload)))}
    done.erased = _delete(folder, left)
    return done


def _promises(fd: int, place: str) -> tuple[set[str], dict[int, str]]:
    """Return the digests to erase, and the payloads to remove: each event's seq and its payload's hash."""
    erased: set[str] = set()
    wanted: dict[int, str] = {}
    for _, raw in _lines(fd):
        if any(mark in raw[:600] for mark in _PROMISES):
            payload: Any = decode(split_line(raw, place=place).payload)
            erased.update(payload.get("digests", ()))
            if "payload_hash" in payload:
                wanted[payload["seq"]] = payload["payload_hash"]
    return erased, wanted


def _lines(fd: int) -> Iterator[tuple[int, bytes]]:
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        yield from ((seq, raw) for seq, raw in enumerate(file) if raw.endswith(b"\n"))


def _sound(raw: bytes, wanted: str, place: str) -> Line:
    line = split_line(raw, place=place)
    if not line.sound or line.payload_hash != wanted:
        why = f"event {line.seq} does not match its excision; nothing was removed. Verify it"
        raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))
    return line


def _renew(folder: Folder, fd: int, standing: dict[int, Line]) -> None:
    """Replace the file by a copy without these payloads, in one step; readers of the old one notice."""
    with os.fdopen(os.dup(fd), "rb") as old:
        old.seek(0)
        lines = (_without(raw, standing[seq]) if seq in standing else raw for seq, raw in enumerate(old))
        folder.replace(LEDGER_FILE, lines)


def _without(raw: bytes, line: Line) -> bytes:
    return raw[: len(raw) - len(line.payload) - 2] + excised_form(line.payload_hash) + b"}\n"


def _delete(folder: Folder, digests: set[str]) -> list[str]:
    """Delete sealed files durably; return those that existed."""
    gone = []
    for digest in sorted(digests):
        with suppress(FileNotFoundError):
            folder.remove(f"sealed/{digest}", sync=False)
            gone.append(digest)
    if gone:
        with folder.sub("sealed") as sealed:
            sealed.sync()
    return gone
