"""The sections and files of a workspace that features read: ``known/sections.json`` names their owners."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import attrs

from deedbook.contract.pointers import join_pointer
from deedbook.format import canonical
from deedbook.format.schema import data_folder

from .documents import Document
from .sources import SYSTEM, list_entries
from .trees import SourceTree


@attrs.frozen
class SectionOwner:
    """A feature that owns a section: *member* is its part of a charter, *files* are its names in ``.system``.

    *packs*: the feature also reads folders of these names in packs.
    """

    member: str
    files: tuple[str, ...]
    packs: bool = False


@cache
def read_owners() -> Mapping[str, SectionOwner]:
    """Return the owners by the feature's name, which is also the name of its section, or of its folders in `roots:`."""
    known = canonical.decode((data_folder("known") / "sections.json").read_bytes())
    return MappingProxyType(
        {
            name: SectionOwner(owner["member"], tuple(owner["files"]), owner.get("packs", False))
            for name, owner in known.items()
        }
    )


def pack_parts() -> tuple[str, ...]:
    """Return the names in a pack that features read."""
    return tuple(name for owner in read_owners().values() if owner.packs for name in owner.files)


def find_sections(
    tree: SourceTree, settings: Document | None, packs: Iterable[SourceTree] = ()
) -> Iterator[tuple[str, str]]:
    """Yield each feature that has something to read in *settings*, *tree* or *packs*, and the place that shows it."""
    said: Any = settings.value if settings else {}
    there = [entry.name for entry in list_entries(tree.folder, SYSTEM)[0]]
    for name, owner in read_owners().items():
        files = [f"{SYSTEM}/{each}" for each in there if each in owner.files]
        if settings and name in said:
            yield name, settings.place(join_pointer(name), key=True)
        elif settings and name in said.get("roots", {}):
            yield name, settings.place(join_pointer("roots", name), key=True)
        elif files or owner.packs:
            read = [pack.display(each) for pack in packs for each in owner.files if pack.folder.exists(each)]
            yield from ((name, place) for place in (files + read)[:1])
