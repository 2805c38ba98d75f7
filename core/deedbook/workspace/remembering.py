"""What a workspace says of memory, and whose it is: the section ``memory:`` and ``persona.json``."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from deedbook.format import canonical
from deedbook.format.detectors import find_any
from deedbook.format.errors import IntakeError

from .declarations import AbilitySource, IdentitySource, MemorySource, Origin
from .documents import Document, pointer
from .sources import SYSTEM
from .trees import Reading, Tree

PERSONA: Final = "persona.json"
_SEALED: Final = ({"detect": "card"}, {"detect": "secret"})


def memory(reading: Reading, settings: Document | None, abilities: Mapping[str, AbilitySource]) -> MemorySource | None:
    """Return what settings say of memory; ``None`` where nothing is remembered here."""
    said: Any = settings.value if settings else {}
    if settings is None or ("memory" not in said and not any(each.kind == "memory" for each in abilities.values())):
        return None
    origin = Origin(settings, "/memory" if "memory" in said else "", inline=True)
    body = said.get("memory", {})
    for index, pattern in enumerate(body.get("never", ())):
        try:
            find_any(pattern)
        except ValueError as problem:
            reading.refuse("SOURCE_INVALID", str(problem), origin.place(pointer("never", index)))
    return MemorySource(id="memory", place=origin.line(), origin=origin, said=body)


def sealing(said: Iterable[Any], remembers: MemorySource | None) -> tuple[Any, ...]:
    """Return what records hide: what memory must never hold is hidden wherever it would be recorded, too."""
    listed = tuple(said)
    if remembers is None:
        return listed
    never = [{"pattern": pattern} for pattern in remembers.said.get("never", ())]
    return (*listed, *(each for each in (*_SEALED, *never) if each not in listed))


def named(settings: Document | None) -> str:
    """Return what of ``.system`` is read because settings name the persona's file; empty where they name none."""
    said: Any = settings.value if settings else {}
    return str(said.get("persona", "")).partition("/")[0]


def persona(reading: Reading, own: Tree, settings: Document | None) -> IdentitySource | None:
    """Return the identity that sessions are bound to, if there is one; what is wrong with its file is a fault."""
    said: Any = settings.value if settings else {}
    named = said.get("persona")
    path = f"{SYSTEM}/{named or PERSONA}"
    if named is None and not any(entry.name == PERSONA for entry in reading.entries(own, SYSTEM)):
        return None
    document = reading.checked(own, path, "persona_v1")
    if document is None:
        return None
    found: Any = document.value
    try:
        digest = canonical.digest(canonical.encode(found))
    except IntakeError as problem:
        reading.refuse("SOURCE_INVALID", str(problem), path)
        return None
    origin = Origin(document)
    return IdentitySource(
        id=found["id"], place=origin.line(), origin=origin, version=found["version"], digest=digest, file=path
    )
