"""The memory store: a file beside the ledger that says what its fold came to, and is only a cache of that.

It names the ledger, the line up to which it was folded, and its own checksum. One that is damaged, or of another
ledger, is passed over; one of a later form is never touched, and one of an older form is for `memory.legacy`.
"""

import re
from typing import Any, Final, Literal, NamedTuple

from deedbook.contract import Object
from deedbook.format.canonical import decode, digest, encode, parse
from deedbook.format.errors import FileRefused, IntakeError, MemoryRefused, fault
from deedbook.format.files import Folder

from .recall import Memory, Name, Slot

FOLDER: Final = "memory"
NAME: Final = f"{FOLDER}/memory_store.json"
FORM: Final = "v1"
MAX_BYTES: Final = 1024 * 1024 * 1024
_FORM: Final = re.compile("v[0-9]{1,9}")
_DEPTH: Final = 128
_NODES: Final = 100_000_000


class Place(NamedTuple):
    """Where a fold stands in its *ledger*: the number of the last line, its hash, and where it ends in the file."""

    ledger: str
    seq: int
    head: str
    end: int


class Stored(NamedTuple):
    """What was found: nothing, a ``sound`` store with its *memory* and *place*, a ``damaged`` or an ``old`` one.

    *raw* is the file, *form* the version that it says it has.
    """

    what: Literal["nothing", "sound", "damaged", "old"]
    raw: bytes = b""
    form: str = ""
    memory: Memory | None = None
    place: Place | None = None


def load(state: Folder) -> Stored:
    """Look at the store of a *state* folder; raises `MemoryRefused` (``MEMORY_FUTURE``) for one of a later form."""
    try:
        raw = state.read(NAME, limit=MAX_BYTES)
    except FileNotFoundError:
        return Stored("nothing")
    except FileRefused:
        return Stored("damaged")
    form = form_of(raw)
    if form is None:
        return Stored("damaged", raw)
    if form != FORM:
        return Stored("old", raw, form)
    try:
        return Stored("sound", raw, form, *_read(decode(raw)))
    except (KeyError, TypeError, ValueError):
        return Stored("damaged", raw, form)


def form_of(raw: bytes) -> str | None:
    """Return the version of a store's form, ``v0`` where it is none of ours; ``None`` for what is no JSON object.

    Raises `MemoryRefused` (``MEMORY_FUTURE``) for a later one than is known here.
    """
    try:
        said = decode(raw)
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    form = said.get("schema_version")
    if said.get("schema") != "memory_store":
        return "v0"
    if form == FORM:
        return FORM
    if isinstance(form, str) and _FORM.fullmatch(form) and int(form[1:]) < int(FORM[1:]):
        return form
    why = (
        f"its form is {str(form)[:40]!r}, and this release knows {FORM}; use the release that wrote it, or move it away"
    )
    raise MemoryRefused(fault("MEMORY_FUTURE", why, place=NAME))


def save(state: Folder, memory: Memory, place: Place) -> str:
    """Write the store, atomically, and return the SHA-256 of the file."""
    raw = render(memory, place)
    state.replace(NAME, raw)
    return digest(raw)


def render(memory: Memory, place: Place) -> bytes:
    """Return the store's bytes."""
    body = {
        "schema": "memory_store",
        "schema_version": FORM,
        **place._asdict(),
        "entries": [[*name, slot.version, slot.holds] for name, slot in sorted(memory.slots.items(), key=_order)],
        "pending": memory.pending,
        "taken_out": memory.taken_out,
    }
    return encode({**body, "sha256": digest(encode(body, _DEPTH, _NODES))}, _DEPTH, _NODES)


def _order(item: tuple[Name, Slot]) -> tuple[str, str, str]:
    persona, zone, key = item[0]
    return persona or "", zone, key


def _read(said: dict[str, Any]) -> tuple[Memory, Place]:
    """Take a store apart; raises `ValueError` where its checksum is another."""
    checksum = said.pop("sha256")
    if digest(encode(said, _DEPTH, _NODES)) != checksum:
        raise ValueError
    place = Place(said["ledger"], said["seq"], said["head"], said["end"])
    if type(place.seq) is not int or type(place.end) is not int:
        raise ValueError
    slots = {Name(persona, zone, key): Slot(version, holds) for persona, zone, key, version, holds in said["entries"]}
    return Memory(slots, dict(said["pending"]), list(said["taken_out"])), place


def readable(raw: bytes) -> Object:
    """Return the JSON object in a file that somebody else wrote; raises `MemoryRefused` (``MEMORY_UNREADABLE``)."""
    try:
        said = parse(raw)
    except IntakeError as problem:
        raise MemoryRefused(fault("MEMORY_UNREADABLE", "it is not what intake accepts"), problem.error) from None
    if not isinstance(said, dict):
        raise MemoryRefused(fault("MEMORY_UNREADABLE", "it is no JSON object"))
    return said
