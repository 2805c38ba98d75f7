"""Memory files of older forms, taken over: their bytes are kept, what they say is remembered in the zone ``legacy``.

Nobody knows on what grounds it stands there, so nothing of it is world state. Whoever wants that proposes it anew.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.entries import LEGACY, MAX_KEY, VERSION, ForbiddenValues
from deedbook.format.errors import IntakeError, MemoryRefused, fault
from deedbook.format.events import Entry, label, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE as LEDGER
from deedbook.format.pointers import join_pointer
from deedbook.ledger.ledger import WorkspaceLedger

from .book import Book
from .recall import Name
from .store import FORM, NAME, form_of, readable

SNAPSHOTS: Final = "memory/snapshots"
MAX_VALUE: Final = 512 * 1024
_TRIES: Final = 16
_FORM: Final = ("schema", "schema_version", "version")
_ODD: Final = re.compile(r"[^a-z0-9._/-]+")
_STARTS: Final = re.compile(r"(^|/)[^a-z0-9]+")


class Found(NamedTuple):
    """One thing that an old store says: where it stands there (a JSON pointer), the key that it gets, the value."""

    pointer: str
    key: str
    value: Any


class Taken(NamedTuple):
    """What became of an old store: its bytes *kept* where, by their SHA-256, how many *entries*, how many left out.

    *again*: it had been taken over before, and nothing was done.
    """

    sha256: str
    form: str
    kept: str
    entries: int
    left_out: int
    again: bool = False


class _Moved(Exception):  # noqa: N818 - it says what the memory is
    """Somebody else changed one of the keys meanwhile."""


def take_over(own: WorkspaceLedger, book: Book, raw: bytes, persona: str | None, *, moved: bool = False) -> Taken:
    """Take over the store *raw* into the memory of *persona*; *moved*: it lay in the place of our own.

    Raises `MemoryRefused`: ``MEMORY_UNREADABLE``, ``MEMORY_FUTURE``, or that it is of the present form.
    """
    form, said = form_of(raw), readable(raw)
    if form is None or form == FORM:
        why = f"it is of the present form {FORM}, which is a cache of its ledger; verify and keep that instead"
        raise MemoryRefused(fault("MEMORY_UNREADABLE", why))
    digest = canonical.digest(raw)
    kept = f"{SNAPSHOTS}/{digest}.json"
    found = list(items(said))
    forbidden = ForbiddenValues()
    good = [each for each in found if not forbidden.matches([each.key, each.value]) and _fits(each.value)]
    taken = Taken(digest, form, kept, len(good), len(found) - len(good))
    with Folder.at(book.state) as state, state.sub(SNAPSHOTS, create=True):
        if not state.exists(kept):
            state.replace(kept, raw, mode=0o400)
        again = _done(book.state, digest, persona)
        if not again:
            _write(own, book, good, taken, raw, persona, moved=moved)
        if moved:
            state.remove(NAME)
    book.refresh()
    return taken._replace(again=again)


def items(said: Object) -> Iterator[Found]:
    """Yield everything that an old store says, whatever its shape: each member, of objects and lists their parts."""
    seen: set[str] = set()
    for name, value in said.items():
        if name in _FORM:
            continue
        if isinstance(value, dict) and value:
            parts = [(part, part, inner) for part, inner in value.items()]
        elif isinstance(value, list) and value:
            parts = [(str(index), _own_key(inner) or str(index), inner) for index, inner in enumerate(value)]
        else:
            yield Found(join_pointer(name), _key(name, seen), value)
            continue
        for step, key, inner in parts:
            yield Found(join_pointer(name, step), _key(f"{name}/{key}", seen), inner)


def _own_key(value: Any) -> str | None:
    """Return the name that a part of a list has itself."""
    found = (
        next((value[part] for part in ("key", "id", "name") if part in value), None) if type(value) is dict else None
    )
    return found if isinstance(found, str) and found else None


def _key(text: str, seen: set[str]) -> str:
    """Return *text* as a key that nothing else of the store has."""
    plain = _STARTS.sub(r"\1", _ODD.sub("-", text.lower()).strip("/")).strip("/")
    base = re.sub(r"/{2,}", "/", plain)[: MAX_KEY - 8].rstrip("/") or "entry"
    made, number = base, 1
    while made in seen:
        number += 1
        made = f"{base}-{number}"
    seen.add(made)
    return made


def _fits(value: Any) -> bool:
    try:
        return len(canonical.encode(value)) <= MAX_VALUE
    except IntakeError:
        return False


def _done(state: Path, digest: str, persona: str | None) -> bool:
    """Say whether the workspace ledger has it already that a store was taken over for *persona*."""
    name = digest.encode()
    with Folder.at(state / "workspace") as folder, folder.open(LEDGER) as file:
        lines = (split_line(raw) for raw in file if b'"memory.migrated"' in raw and name in raw)
        said = [canonical.decode(line.payload) for line in lines if line.event_type == "memory.migrated"]
    return any((each["before"], each["persona"]) == (digest, persona) for each in said)


def _write(
    own: WorkspaceLedger, book: Book, found: list[Found], taken: Taken, raw: bytes, persona: str | None, *, moved: bool
) -> None:
    """Write down, in one append, what was kept and what was taken over."""
    for _ in range(_TRIES):
        book.refresh()
        names = [Name(persona, LEGACY, each.key) for each in found]
        before = [book.slot(name).version for name in names]

        def check(names: list[Name] = names, before: list[int] = before) -> None:
            book.refresh()
            if [book.slot(name).version for name in names] != before:
                raise _Moved

        try:
            own.append(_entries(own, found, before, taken, raw, persona, moved=moved), durable=True, check=check)
        except _Moved:
            continue
        return
    raise MemoryRefused(fault("MEMORY_CONFLICT", "the zone legacy changes too often; try again", retryable=True))


def _entries(
    own: WorkspaceLedger, found: list[Found], before: list[int], taken: Taken, raw: bytes, persona: str | None,
    *, moved: bool,
) -> list[Entry]:  # fmt: skip
    about = {"sha256": taken.sha256, "size": len(raw), "kept": taken.kept}
    made = [{"schema_version": VERSION, "zone": LEGACY, "key": each.key, "value": each.value} for each in found]
    moving = {"name": NAME, **about, "form": taken.form}
    first = [_entry(own, "memory.quarantined", own.root, moving)] if moved else []
    first.append(_entry(own, "memory.snapshot", own.root, about))
    migrated = {
        "from": taken.form,
        "to": FORM,
        "before": taken.sha256,
        "after": canonical.digest(b"".join(canonical.digest(canonical.encode(entry)).encode() for entry in made)),
        "snapshot": taken.kept,
        "entries": len(made),
        "persona": persona,
    }
    first.append(_entry(own, "memory.migrated", first[-1].span, migrated))
    above = first[-1].span
    rest = []
    for each, entry, version in zip(found, made, before, strict=True):
        said = {"source": taken.sha256, "pointer": each.pointer, "persona": persona, "entry": entry}
        rest.append(_entry(own, "memory.imported", above, {**said, "version": version + 1}))
    return [*first, *rest]


def _entry(own: WorkspaceLedger, event_type: str, above: str, payload: Object) -> Entry:
    return Entry(label(event_type, "runtime", None), own.span(), above, canonical.encode_payload(dict(payload)))
