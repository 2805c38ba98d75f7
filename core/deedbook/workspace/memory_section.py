"""The memory settings of a workspace: the section ``memory:``, and the persona in ``persona.json``."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from deedbook.format import canonical
from deedbook.format.detectors import find_any
from deedbook.format.errors import IntakeError
from deedbook.format.pointers import join_pointer

from .declarations import AbilitySource, IdentitySource, MemorySource, Origin
from .documents import Document
from .sources import SYSTEM
from .trees import SourceReader, SourceTree

PERSONA: Final = "persona.json"
_SEALED: Final = ({"detect": "card"}, {"detect": "secret"})


def read_memory(
    reader: SourceReader, settings: Document | None, abilities: Mapping[str, AbilitySource]
) -> MemorySource | None:
    """Return the memory settings; ``None`` where the workspace has no memory."""
    said: Any = settings.value if settings else {}
    if settings is None or ("memory" not in said and not any(each.kind == "memory" for each in abilities.values())):
        return None
    origin = Origin(settings, "/memory" if "memory" in said else "", inline=True)
    body = said.get("memory", {})
    for index, pattern in enumerate(body.get("never", ())):
        try:
            find_any(pattern)
        except ValueError as problem:
            reader.refuse("SOURCE_INVALID", str(problem), origin.place(join_pointer("never", index)))
    return MemorySource(id="memory", place=origin.line(), origin=origin, section=body)


def seal_patterns(said: Iterable[Any], remembers: MemorySource | None) -> tuple[Any, ...]:
    """Return the values that records seal: also everything that memory must never hold."""
    listed = tuple(said)
    if remembers is None:
        return listed
    never = [{"pattern": pattern} for pattern in remembers.section.get("never", ())]
    return (*listed, *(each for each in (*_SEALED, *never) if each not in listed))


def persona_folder(settings: Document | None) -> str:
    """Return the folder of ``.system`` that holds the persona's file; empty where settings name none."""
    said: Any = settings.value if settings else {}
    return str(said.get("persona", "")).partition("/")[0]


def read_identity(reader: SourceReader, own: SourceTree, settings: Document | None) -> IdentitySource | None:
    """Return the identity that sessions are bound to, if there is one; an invalid file is a fault."""
    said: Any = settings.value if settings else {}
    named = said.get("persona")
    path = f"{SYSTEM}/{named or PERSONA}"
    if named is None and not any(entry.name == PERSONA for entry in reader.list_entries(own, SYSTEM)):
        return None
    document = reader.read_yaml(own, path, "persona_v1")
    if document is None:
        return None
    found: Any = document.value
    try:
        digest = canonical.digest(canonical.encode(found))
    except IntakeError as problem:
        reader.refuse("SOURCE_INVALID", str(problem), path)
        return None
    origin = Origin(document)
    return IdentitySource(
        id=found["id"], place=origin.line(), origin=origin, version=found["version"], digest=digest, file=path
    )
