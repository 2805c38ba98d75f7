"""Files of features by kind and id: an id is taken once, and only a file of the workspace replaces that of a pack.

Workflow files and the files of pipelines follow this rule. ``overrides: <pack>`` says that a file replaces that of a
pack.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import attrs

from deedbook.contract.pointers import join_pointer
from deedbook.workspace.declarations import Origin
from deedbook.workspace.documents import Document
from deedbook.workspace.trees import SourceReader

OVERRIDES: Final = "overrides"


@attrs.frozen(kw_only=True)
class IndexedFile:
    """A file: its kind (*axis*), its *id*, and its *document*; *pack* is ``None`` for a file of the workspace."""

    axis: str
    id: str
    document: Document = attrs.field(repr=False)
    pack: str | None = None

    @property
    def front(self) -> Any:
        """The value of the document: a YAML file's own, or the front matter of Markdown."""
        return self.document.value

    @property
    def overrides(self) -> str | None:
        """The pack whose file it replaces."""
        found: str | None = self.front.get(OVERRIDES)
        return found

    @property
    def origin(self) -> Origin:
        """The position of the file, for declarations."""
        return Origin(self.document, packed=self.pack is not None)

    @property
    def line(self) -> str:
        """``file:line`` of the id."""
        return self.document.line("/id")

    def place(self, *keys: str | int) -> str:
        """Return ``file:line:column`` of the value at *keys*."""
        return self.document.place(join_pointer(*keys) if keys else "")


F = TypeVar("F", bound=IndexedFile)


class FileIndex(Generic[F]):
    """*files* by axis and id. Faults are reported to *reader*."""

    def __init__(self, axes: Iterable[str], reader: SourceReader) -> None:
        self.files: dict[str, dict[str, F]] = {axis: {} for axis in axes}
        self._reader = reader
        self._packed: dict[tuple[str, str], F] = {}

    def add(self, file: F) -> bool:
        """Add a file, and return whether there is a file with its id now. Those of packs are added first."""
        if file.pack is not None and file.overrides is not None:
            self._refuse("overrides: a file of a pack replaces no other; leave it out", file.place(OVERRIDES))
            return False
        known = self.files[file.axis]
        first = known.get(file.id)
        if first is None:
            known[file.id] = file
        elif file.pack is None and first.pack is not None and file.overrides is not None:
            self._packed[file.axis, file.id] = first
            known[file.id] = file
        else:
            hint = "rename one of them"
            if file.pack is None and first.pack is not None:
                hint = f"rename it, or replace the pack's file with overrides: {pack_name(first.pack)}"
            self._refuse(f'"{file.id}" is also in {first.line}; an id names one of the {file.axis}, {hint}', file.line)
        return True

    def check_overrides(self) -> None:
        """Refuse each file of the workspace that replaces no file of the pack that it names."""
        for file in self._own_files():
            first = self._packed.get((file.axis, file.id))
            if file.overrides is None:
                continue
            if first is None or first.pack is None:
                why = f"overrides: no pack has the file {file.axis}/{file.id}; leave it out, or correct the id"
                self._refuse(why, file.place(OVERRIDES))
            elif pack_name(first.pack) != file.overrides:
                name = pack_name(first.pack)
                why = f"overrides: {file.axis}/{file.id} is of the pack {name}, not of {file.overrides}"
                self._refuse(why, file.place(OVERRIDES))

    def _own_files(self) -> Iterator[F]:
        for axis in self.files.values():
            yield from (file for file in axis.values() if file.pack is None)

    def _refuse(self, why: str, place: str) -> None:
        self._reader.refuse("SOURCE_INVALID", why, place)


def pack_name(label: str) -> str:
    """Return the id of a pack from its label, ``pack ID (DISTRIBUTION VERSION)``."""
    return label.removeprefix("pack ").partition(" (")[0]
