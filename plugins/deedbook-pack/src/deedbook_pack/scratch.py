"""A scratch workspace for one pack: what the pack contains, and the abilities that its tests name.

The file ``pack.test.yaml`` of the pack declares these abilities, agents and principals in the form of
``.system/deedbook.yaml``. Without it, the scratch workspace has only what the pack brings.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from deedbook.format.errors import DeedbookError, DomainError, SourceError, fault
from deedbook.format.files import Folder
from deedbook.plugins.plugins import Catalogue
from deedbook.workspace.documents import parse_yaml
from deedbook.workspace.site import SETTINGS
from deedbook.workspace.sources import MAX_BYTES

from .packages import Pack

SETTINGS_FILE: Final = "pack.test.yaml"
"""The settings of the scratch workspace, beside the folders of the pack."""


@attrs.frozen(eq=False)
class Scratch:
    """A workspace at *root* whose only pack is *pack*; *catalogue* has the installed plugins and this pack.

    *declares*: whether the pack says with `SETTINGS_FILE` which abilities its rules are about.
    """

    pack: Pack
    root: Path
    catalogue: Catalogue
    declares: bool

    def relocate(self, error: DomainError) -> DomainError:
        """Return *error* with a place in the pack's own files."""
        return attrs.evolve(error, place=self.relocate_place(error.place))

    def relocate_place(self, place: str | None) -> str | None:
        """Return *place* as a place in the pack's own files."""
        if place is not None and place.startswith(f"{SETTINGS}:"):
            place = f"{self.pack.label}: {SETTINGS_FILE}{place.removeprefix(SETTINGS)}"
        return self.pack.relocate(place)


@contextmanager
def open_scratch(pack: Pack, catalogue: Catalogue) -> Iterator[Scratch]:
    """Make a scratch workspace for *pack*. Raises `DeedbookError` where its settings cannot be read."""
    text = _read_settings(pack)
    with tempfile.TemporaryDirectory(prefix="deedbook-pack-") as root:
        with Folder.at(root) as folder:
            settings = f"{text or 'schema_version: v1'}\npacks: [{pack.name}]\n"
            folder.replace(SETTINGS, settings.encode(), synced=False)
        yield Scratch(pack, Path(root), pack.use_in(catalogue), text is not None)


def _read_settings(pack: Pack) -> str | None:
    """Return the text of the pack's settings for tests, to which ``packs:`` can be added; ``None`` without any."""
    tree = pack.tree()
    if not tree.folder.exists(SETTINGS_FILE):
        return None
    place = tree.display(SETTINGS_FILE)
    try:
        raw = tree.folder.read(SETTINGS_FILE, limit=MAX_BYTES)
        document = parse_yaml(raw, place)
    except DeedbookError as problem:
        errors = map(tree.label_error, problem.errors)
        raise SourceError(*(attrs.evolve(each, place=pack.relocate(each.place)) for each in errors)) from None
    text = raw.decode()
    said = document.value
    if not isinstance(said, dict) or text.lstrip().startswith("{"):
        why = "is written in braces or is no mapping; write one key per line, such as: schema_version: v1"
        raise SourceError(fault("SOURCE_INVALID", why, place=pack.relocate(document.place())))
    if "packs" in said:
        why = f"names packs; in the tests of a pack, {pack.name} is the only one: leave packs out"
        raise SourceError(fault("SOURCE_INVALID", why, place=pack.relocate(document.place("/packs", key=True))))
    return text
