"""Erase sealed values lawfully: the ledger records it first, then their bytes are deleted; lines and proofs stay."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.format.canonical import MAX_BYTES, decode
from deedbook.format.errors import DeedbookError, LedgerError, fault
from deedbook.format.events import SESSION_ID
from deedbook.format.files import Folder
from deedbook.format.reader import read
from deedbook.format.sealed import SALT_BYTES, digests_in
from deedbook.maintenance.finishing import finish, pending_cleanup
from deedbook.maintenance.opening import OWN, open_ledger
from deedbook.workspace.site import Site

TYPE: Final = "payload.erased"


@attrs.frozen
class Copy:
    """Another sealed copy of an erased value: its ledger, its digest, and its event, if any."""

    ledger: str
    digest: str
    seq: int | None


@attrs.frozen
class ErasureResult:
    """The result of an erasure: the digests by event, those that were deleted now, and other copies of the values."""

    events: Mapping[int, tuple[str, ...]]
    deleted: tuple[str, ...]
    copies: tuple[Copy, ...]


def erase(site: Site, name: str, *, seq: int | None, digest: str | None, reason: str, by: str) -> ErasureResult:
    """Erase the sealed values of the ledger *name*: of event *seq*, the one with *digest*, or all.

    Values sealed inside them are also erased. If they were erased before, nothing is written. Raises `LedgerError`:
    ``ERASE_REFUSED`` if there is no such sealed value, and as `open_ledger` does.
    """
    with Folder.at(site.state) as state, pending_cleanup(state, name):
        finish(state, name)
        with open_ledger(site, name, by) as ledger:
            chosen, before = _select(ledger.folder, seq, digest)
            if not chosen:
                raise LedgerError(fault("ERASE_REFUSED", _nothing_found_message(seq, digest), place=ledger.folder.path))
            values = [
                value for digests in chosen.values() for each in digests if (value := _value(ledger.folder, each))
            ]
            new = {at: tuple(each for each in digests if each not in before) for at, digests in chosen.items()}
            payloads: list[dict[str, Any]] = [{"seq": at, "digests": list(new[at])} for at in new if new[at]]
            if payloads:
                ledger.append_events({TYPE: payloads}, reason)
        done = finish(state, name)
    gone = {each for digests in chosen.values() for each in digests}
    return ErasureResult(chosen, tuple(done.erased), tuple(_copies(site.state, values, gone)))


def _nothing_found_message(seq: int | None, digest: str | None) -> str:
    where = f"event {seq}" if seq is not None else "the ledger"
    what = f"no sealed value {digest}" if digest else "no sealed value"
    return f"{what} is in {where}; remove a payload from its line with `deedbook ledger excise`"


def _select(folder: Folder, seq: int | None, digest: str | None) -> tuple[dict[int, tuple[str, ...]], set[str]]:
    """Return the selected digests by event, with those inside them, and all that were erased before."""
    found: dict[int, tuple[str, ...]] = {}
    before: set[str] = set()
    for event in read(folder):
        if event.type == TYPE:
            before.update(event.payload.get("digests", ()))
        elif seq in (None, event.seq):
            every = tuple(dict.fromkeys(_inside(folder, digests_in(event.payload))))
            wanted = every if digest is None else _inside(folder, (each for each in every if each == digest))
            if chosen := tuple(dict.fromkeys(wanted)):
                found[event.seq] = chosen
    return found, before


def _inside(folder: Folder, digests: Iterator[str]) -> Iterator[str]:
    """Yield *digests* and those of values sealed inside them."""
    for digest in digests:
        yield digest
        value = _value(folder, digest)
        if value is not None and b'"$sealed"' in value:
            yield from _inside(folder, digests_in(decode(value)))


def _value(folder: Folder, digest: str) -> bytes | None:
    """Return a sealed value's canonical bytes; ``None`` if they are missing or unreadable."""
    with suppress(OSError, DeedbookError):
        return folder.read(f"sealed/{digest}", limit=MAX_BYTES + SALT_BYTES)[SALT_BYTES:]
    return None


# --- the same values elsewhere ----------------------------------------------------------------------------------------


def _copies(state: Path, values: Collection[bytes], gone: Collection[str]) -> Iterator[Copy]:
    """Yield the other sealed copies of *values* in the ledgers of a *state* folder: each has its own salt."""
    sizes, wanted = {len(value) + SALT_BYTES for value in values}, set(values)
    for name in (OWN, *_sessions(state)) if wanted else ():
        with Folder.at(state / (name if name == OWN else f"sessions/{name}")) as folder:
            same = [each for each in _files(folder, sizes) if each not in gone and _value(folder, each) in wanted]
            where = dict(_places(folder, same)) if same else {}
            yield from (Copy(name, each, where.get(each)) for each in same)


def _sessions(state: Path) -> list[str]:
    with suppress(FileNotFoundError), Folder.at(state) as folder:
        return [found.name for found in folder.scan("sessions") if found.folder and SESSION_ID.fullmatch(found.name)]
    return []


def _files(folder: Folder, sizes: Collection[int]) -> list[str]:
    with suppress(FileNotFoundError):
        return [found.name for found in folder.scan("sealed") if found.size in sizes and not found.folder]
    return []


def _places(folder: Folder, digests: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the event of each of *digests*."""
    with suppress(DeedbookError, FileNotFoundError):
        for event in read(folder):
            if event.type != TYPE:
                yield from ((each, event.seq) for each in _inside(folder, digests_in(event.payload)) if each in digests)
