"""What was promised in a ledger and is not done yet: sealed files to be deleted, payloads to be taken out of lines.

The event that says so is written first and is durable; then it is done here, as often as needed: whoever is killed
half-way is followed by the next who opens the ledger for this, or by a recovery.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import attrs

from deedbook.format.canonical import decode
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import Line, excised, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import DRAFT, LEDGER_FILE
from deedbook.format.sealed import digests_in
from deedbook.ledger.chain import place_of
from deedbook.ledger.journal import acquire, is_replaced
from deedbook.ledger.ledger import LOCK_SECONDS, TURN_SECONDS
from deedbook.plugins.features import Features

FOLDER: Final = "unfinished"
"""Where a state folder has a file for each ledger in which something is being erased or taken out."""
_PROMISES: Final = (b',"event_type":"payload.erased"', b',"event_type":"ledger.excised"')


@attrs.define
class Done:
    """What was done: the digests of the sealed values that are gone, and the seqs of the payloads that are."""

    erased: list[str] = attrs.field(factory=list)
    excised: list[int] = attrs.field(factory=list)


@contextmanager
def promised(state: Folder, name: str) -> Iterator[None]:
    """Remember, durably, that there may be something to finish in the ledger *name* until this block ends well."""
    state.replace(f"{FOLDER}/{name}", b"")
    yield
    with suppress(FileNotFoundError):
        state.remove(f"{FOLDER}/{name}")


def unfinished(state: Folder) -> list[str]:
    """Return the names of ledgers in which something was begun and perhaps not finished."""
    try:
        return [found.name for found in state.scan(FOLDER) if not found.folder and found.name != DRAFT]
    except FileNotFoundError:
        return []


def finish_all(state: Folder) -> dict[str, Done]:
    """Finish what can be finished now in a *state* folder; a ledger that somebody writes is left for the next time."""
    done = {}
    for name in unfinished(state):
        with suppress(LedgerError), promised(state, name):
            done[name] = finish(state, name)
    return done


def finish(state: Folder, name: str) -> Done:
    """Do all that the ledger *name* says is to be done and is not; raises `LedgerError` or `OSError`.

    *name* is a session's id, or ``workspace``. ``LEDGER_LOCKED`` while somebody writes it.
    """
    path = name if name == "workspace" else f"sessions/{name}"
    try:
        folder = state.sub(path)
    except FileNotFoundError:
        raise LedgerError(fault("SESSION_NOT_FOUND", f"there is no ledger {name!r}")) from None
    with folder, _held(folder, TURN_SECONDS if name == "workspace" else LOCK_SECONDS) as fd:
        done = _finished(folder, fd)
    if done.excised:
        Features.installed().demand("payload_removed", state=state, name=name)
    return done


@contextmanager
def _held(folder: Folder, seconds: float) -> Iterator[int]:
    """Open the ledger's file under its lock; the file that has the name, not one that was replaced meanwhile."""
    while True:
        fd = folder.append(LEDGER_FILE, create=False)
        try:
            acquire(fd, place=place_of(folder), seconds=seconds)
            if not is_replaced(fd):
                yield fd
                return
        finally:
            os.close(fd)


def _finished(folder: Folder, fd: int) -> Done:
    place, done = place_of(folder), Done()
    erased, wanted = _promises(fd, place)
    standing: dict[int, Line] = {}
    if wanted:
        for seq, raw in _lines(fd):
            if seq in wanted and not raw.endswith(excised(wanted[seq]) + b"}\n"):
                standing[seq] = _sound(raw, wanted[seq], place)
    if standing:
        _renew(folder, fd, standing)
    done.excised = sorted(standing)
    left = {*erased, *(digest for line in standing.values() for digest in digests_in(decode(line.payload)))}
    done.erased = _delete(folder, left)
    return done


def _promises(fd: int, place: str) -> tuple[set[str], dict[int, str]]:
    """Return what is to be erased (digests), and what is to be taken out: each event's seq and its payload's hash."""
    erased: set[str] = set()
    wanted: dict[int, str] = {}
    for _, raw in _lines(fd):
        if any(mark in raw[:600] for mark in _PROMISES):
            said: Any = decode(split_line(raw, place=place).payload)
            erased.update(said.get("digests", ()))
            if "payload_hash" in said:
                wanted[said["seq"]] = said["payload_hash"]
    return erased, wanted


def _lines(fd: int) -> Iterator[tuple[int, bytes]]:
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        yield from ((seq, raw) for seq, raw in enumerate(file) if raw.endswith(b"\n"))


def _sound(raw: bytes, wanted: str, place: str) -> Line:
    line = split_line(raw, place=place)
    if not line.sound or line.payload_hash != wanted:
        why = f"event {line.seq} is not what its excision names; nothing was taken out. Verify it"
        raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))
    return line


def _renew(folder: Folder, fd: int, standing: dict[int, Line]) -> None:
    """Put a copy without these payloads in the file's place, in one step; who has the old one open notices."""
    with os.fdopen(os.dup(fd), "rb") as old:
        old.seek(0)
        lines = (_without(raw, standing[seq]) if seq in standing else raw for seq, raw in enumerate(old))
        folder.replace(LEDGER_FILE, lines)


def _without(raw: bytes, line: Line) -> bytes:
    return raw[: len(raw) - len(line.payload) - 2] + excised(line.payload_hash) + b"}\n"


def _delete(folder: Folder, digests: set[str]) -> list[str]:
    """Delete sealed files and make that durable; return those that were there."""
    gone = []
    for digest in sorted(digests):
        with suppress(FileNotFoundError):
            folder.remove(f"sealed/{digest}", sync=False)
            gone.append(digest)
    if gone:
        with folder.sub("sealed") as sealed:
            sealed.sync()
    return gone
