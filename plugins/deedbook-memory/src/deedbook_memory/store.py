"""The memory store: a file beside the ledger that caches the fold of the ledger.

It names the ledger, the last folded line, and its own checksum. A damaged store, or one of another ledger, is ignored;
one of a later form is never touched, and one of an older form is for `memory.legacy`.
"""

import re
from typing import Any, Final, Literal, NamedTuple

from deedbook.contract import Object
from deedbook.format.canonical import decode, digest, encode, parse
from deedbook.format.errors import FileRefused, IntakeError, MemoryRefused, fault
from deedbook.format.files import Folder

from .recall import EntryName, Memory, Slot

FOLDER: Final = "memory"
NAME: Final = f"{FOLDER}/memory_store.json"
FORM: Final = "v1"
MAX_BYTES: Final = 1024 * 1024 * 1024
_FORM: Final = re.compile("v[0-9]{1,9}")
_DEPTH: Final = 128
_NODES: Final = 100_000_000


class FoldPosition(NamedTuple):
    """The position of a fold in its *ledger*: the number of the last line, its hash, and its end in the file."""

    ledger: str
    seq: int
    head: str
    end: int


class StoredMemory(NamedTuple):
    """The store as found: nothing, a ``sound`` one with its *memory* and *place*, a ``damaged`` or an ``old`` one.

    *raw* is the file, *form* its version.
    """

    state: Literal["nothing", "sound", "damaged", "old"]
    raw: bytes = b""
    form: str = ""
    memory: Memory | None = None
    place: FoldPosition | None = None


def load_store(state: Folder) -> StoredMemory:
    """Read the store of a *state* folder; raises `MemoryRefused` (``MEMORY_FUTURE``) for one of a later form."""
    try:
        raw = state.read(NAME, limit=MAX_BYTES)
    except FileNotFoundError:
        return StoredMemory("nothing")
    except FileRefused:
        return StoredMemory("damaged")
    form = detect_form(raw)
    if form is None:
        return StoredMemory("damaged", raw)
    if form != FORM:
        return StoredMemory("old", raw, form)
    try:
        return StoredMemory("sound", raw, form, *_parse(decode(raw)))
    except (KeyError, TypeError, ValueError):
        return StoredMemory("damaged", raw, form)


def detect_form(raw: bytes) -> str | None:
    """Return the version of a store's form, ``v0`` for a foreign one; ``None`` if it is no JSON object.

    Raises `MemoryRefused` (``MEMORY_FUTURE``) for a later version than is known here.
    """
    try:
        document = decode(raw)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    form = document.get("schema_version")
    if document.get("schema") != "memory_store":
        return "v0"
    if form == FORM:
        return FORM
    if isinstance(form, str) and _FORM.fullmatch(form) and int(form[1:]) < int(FORM[1:]):
        return form
    why = (
        f"its form is {str(form)[:40]!r}, and this release knows {FORM}; use the release that wrote it, or move it away"
    )
    raise MemoryRefused(fault("MEMORY_FUTURE", why, place=NAME))


def save_store(state: Folder, memory: Memory, place: FoldPosition) -> str:
    """Write the store, atomically, and return the SHA-256 of the file."""
    raw = render_store(memory, place)
    state.replace(NAME, raw)
    return digest(raw)


def render_store(memory: Memory, place: FoldPosition) -> bytes:
    """Return the store's bytes."""
    body = {
        "schema": "memory_store",
        "schema_version": FORM,
        **place._asdict(),
        "entries": [[*name, slot.version, slot.content] for name, slot in sorted(memory.slots.items(), key=_sort_key)],
        "pending": memory.pending,
        "taken_out": memory.excised,
    }
    return encode({**body, "sha256": digest(encode(body, _DEPTH, _NODES))}, _DEPTH, _NODES)


def _sort_key(item: tuple[EntryName, Slot]) -> tuple[str, str, str]:
    persona, zone, key = item[0]
    return persona or "", zone, key


def _parse(document: dict[str, Any]) -> tuple[Memory, FoldPosition]:
    """Return the content of a store; raises `ValueError` if its checksum is wrong."""
    checksum = document.pop("sha256")
    if digest(encode(document, _DEPTH, _NODES)) != checksum:
        raise ValueError
    place = FoldPosition(document["ledger"], document["seq"], document["head"], document["end"])
    if type(place.seq) is not int or type(place.end) is not int:
        raise ValueError
    slots = {
        EntryName(persona, zone, key): Slot(version, holds)
        for persona, zone, key, version, holds in document["entries"]
    }
    return Memory(slots, dict(document["pending"]), list(document["taken_out"])), place


def parse_object(raw: bytes) -> Object:
    """Return the JSON object in a foreign file; raises `MemoryRefused` (``MEMORY_UNREADABLE``)."""
    try:
        document = parse(raw)
    except IntakeError as problem:
        raise MemoryRefused(fault("MEMORY_UNREADABLE", "it is not what intake accepts"), problem.error) from None
    if not isinstance(document, dict):
        raise MemoryRefused(fault("MEMORY_UNREADABLE", "it is no JSON object"))
    return document
