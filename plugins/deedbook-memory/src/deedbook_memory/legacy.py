"""Imports memory files of older forms: their bytes are kept, and their content goes into the zone ``legacy``.

Their grounds are unknown, so nothing of them becomes world state. To make it world state, propose it again.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from deedbook.charter.zones import LEGACY
from deedbook.contract import Object
from deedbook.contract.pointers import join_pointer
from deedbook.format import canonical
from deedbook.format.errors import IntakeError, MemoryRefused, fault
from deedbook.format.events import Entry, label, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE as LEDGER
from deedbook.ledger.ledger import WorkspaceLedger

from .book import MemoryBook
from .entries import MAX_KEY, VERSION, ForbiddenValues
from .recall import EntryName
from .store import FORM, NAME, detect_form, parse_object

SNAPSHOTS: Final = "memory/snapshots"
MAX_VALUE: Final = 512 * 1024
_TRIES: Final = 16
_FORM: Final = ("schema", "schema_version", "version")
_ODD: Final = re.compile(r"[^a-z0-9._/-]+")
_STARTS: Final = re.compile(r"(^|/)[^a-z0-9]+")


class LegacyEntry(NamedTuple):
    """One entry of an old store: its position (a JSON pointer), its new key, its value."""

    pointer: str
    key: str
    value: Any


class MigrationResult(NamedTuple):
    """The result of an import: the SHA-256 of the store, where its bytes are *kept*, the number of entries.

    *again*: it was imported before, and nothing was done.
    """

    sha256: str
    form: str
    kept: str
    entries: int
    left_out: int
    again: bool = False


class _ConcurrentChange(Exception):  # noqa: N818 - it says what the memory is
    """Another process changed one of the keys meanwhile."""


def take_over(
    ledger: WorkspaceLedger, book: MemoryBook, raw: bytes, persona: str | None, *, moved: bool = False
) -> MigrationResult:
    """Import the store *raw* into the memory of *persona*; *moved*: it was in the place of our own.

    Raises `MemoryRefused`: ``MEMORY_UNREADABLE``, ``MEMORY_FUTURE``, or because it is of the current form.
    """
    form, document = detect_form(raw), parse_object(raw)
    if form is None or form == FORM:
        why = f"it is of the present form {FORM}, which is a cache of its ledger; verify and keep that instead"
        raise MemoryRefused(fault("MEMORY_UNREADABLE", why))
    digest = canonical.digest(raw)
    snapshot = f"{SNAPSHOTS}/{digest}.json"
    found = list(list_items(document))
    forbidden = ForbiddenValues()
    good = [each for each in found if not forbidden.matches([each.key, each.value]) and _is_small_enough(each.value)]
    result = MigrationResult(digest, form, snapshot, len(good), len(found) - len(good))
    with Folder.at(book.state) as state, state.sub(SNAPSHOTS, create=True):
        if not state.exists(snapshot):
            state.replace(snapshot, raw, mode=0o400)
        again = _is_recorded(book.state, digest, persona)
        if not again:
            _append(ledger, book, good, result, raw, persona, moved=moved)
        if moved:
            state.remove(NAME)
    book.refresh()
    return result._replace(again=again)


def list_items(document: Object) -> Iterator[LegacyEntry]:
    """Yield every entry of an old store of any shape: each member, of objects and lists their parts."""
    seen: set[str] = set()
    for name, value in document.items():
        if name in _FORM:
            continue
        if isinstance(value, dict) and value:
            parts = [(part, part, inner) for part, inner in value.items()]
        elif isinstance(value, list) and value:
            parts = [(str(index), _find_name(inner) or str(index), inner) for index, inner in enumerate(value)]
        else:
            yield LegacyEntry(join_pointer(name), _build_key(name, seen), value)
            continue
        for step, key, inner in parts:
            yield LegacyEntry(join_pointer(name, step), _build_key(f"{name}/{key}", seen), inner)


def _find_name(value: Any) -> str | None:
    """Return the name that an element of a list has itself."""
    found = (
        next((value[part] for part in ("key", "id", "name") if part in value), None) if type(value) is dict else None
    )
    return found if isinstance(found, str) and found else None


def _build_key(text: str, seen: set[str]) -> str:
    """Return *text* as a key that no other entry of the store has."""
    plain = _STARTS.sub(r"\1", _ODD.sub("-", text.lower()).strip("/")).strip("/")
    base = re.sub(r"/{2,}", "/", plain)[: MAX_KEY - 8].rstrip("/") or "entry"
    made, number = base, 1
    while made in seen:
        number += 1
        made = f"{base}-{number}"
    seen.add(made)
    return made


def _is_small_enough(value: Any) -> bool:
    try:
        return len(canonical.encode(value)) <= MAX_VALUE
    except IntakeError:
        return False


def _is_recorded(state: Path, digest: str, persona: str | None) -> bool:
    """Return whether the workspace ledger records that the store was imported for *persona*."""
    name = digest.encode()
    with Folder.at(state / "workspace") as folder, folder.open(LEDGER) as file:
        lines = (split_line(raw) for raw in file if b'"memory.migrated"' in raw and name in raw)
        payloads = [canonical.decode(line.payload) for line in lines if line.event_type == "memory.migrated"]
    return any((each["before"], each["persona"]) == (digest, persona) for each in payloads)


def _append(
    ledger: WorkspaceLedger,
    book: MemoryBook,
    found: list[LegacyEntry],
    result: MigrationResult,
    raw: bytes,
    persona: str | None,
    *,
    moved: bool,
) -> None:
    """Record the snapshot and the import in one append."""
    for _ in range(_TRIES):
        book.refresh()
        names = [EntryName(persona, LEGACY, each.key) for each in found]
        before = [book.get_slot(name).version for name in names]

        def check(names: list[EntryName] = names, before: list[int] = before) -> None:
            book.refresh()
            if [book.get_slot(name).version for name in names] != before:
                raise _ConcurrentChange

        try:
            ledger.append(
                _build_entries(ledger, found, before, result, raw, persona, moved=moved), durable=True, check=check
            )
        except _ConcurrentChange:
            continue
        return
    raise MemoryRefused(fault("MEMORY_CONFLICT", "the zone legacy changes too often; try again", retryable=True))


def _build_entries(
    ledger: WorkspaceLedger, found: list[LegacyEntry], before: list[int], result: MigrationResult, raw: bytes,
    persona: str | None, *, moved: bool,
) -> list[Entry]:  # fmt: skip
    about = {"sha256": result.sha256, "size": len(raw), "kept": result.kept}
    entries = [{"schema_version": VERSION, "zone": LEGACY, "key": each.key, "value": each.value} for each in found]
    moving = {"name": NAME, **about, "form": result.form}
    first = [_build_entry(ledger, "memory.quarantined", ledger.root, moving)] if moved else []
    first.append(_build_entry(ledger, "memory.snapshot", ledger.root, about))
    migrated = {
        "from": result.form,
        "to": FORM,
        "before": result.sha256,
        "after": canonical.digest(b"".join(canonical.digest(canonical.encode(entry)).encode() for entry in entries)),
        "snapshot": result.kept,
        "entries": len(entries),
        "persona": persona,
    }
    first.append(_build_entry(ledger, "memory.migrated", first[-1].span, migrated))
    above = first[-1].span
    rest = []
    for each, entry, version in zip(found, entries, before, strict=True):
        payload = {"source": result.sha256, "pointer": each.pointer, "persona": persona, "entry": entry}
        rest.append(_build_entry(ledger, "memory.imported", above, {**payload, "version": version + 1}))
    return [*first, *rest]


def _build_entry(ledger: WorkspaceLedger, event_type: str, above: str, payload: Object) -> Entry:
    return Entry(label(event_type, "runtime", None), ledger.span(), above, canonical.encode_payload(dict(payload)))
