"""Names and digests of a workspace's source files, without parsing them.

A start that finds the same names and the same bytes as the last one need not read the sources again.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Final

from deedbook.format.errors import FileRefused
from deedbook.format.files import Folder

_LEVELS: Final = 5
"""The number of folder levels below `.system` that can hold sources."""
_READ: Final = ".agent"
"""The only hidden name that is read. Editors and tools create others, which change nothing."""


def listing(root: Folder, folders: Iterable[str]) -> str:
    """Return a digest of every name in *folders* and below, with its kind; missing folders also count."""
    total = sha256()
    for folder in folders:
        for place, names in _walk(root, folder, _LEVELS):
            shown = "\0".join(f"{kind}{name}" for name, kind in names)
            total.update(f"{place}\n{shown}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def is_unchanged(root: Folder, sources: Mapping[str, str]) -> bool:
    """Return whether every file below *root* still has its digest; *sources* holds the SHA-256 of each, by path."""
    try:
        return all(root.digests(folder, names) == list(names.values()) for folder, names in _by_folder(sources))
    except (OSError, FileRefused):
        return False


def _walk(root: Folder, folder: str, levels: int) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    try:
        names = [(name, kind) for name, kind in root.kinds(folder) if name[0] != "." or name == _READ]
    except (OSError, FileRefused) as problem:
        names = [(type(problem).__name__, "!")]
    yield folder, names
    if levels > 1:
        for name, kind in names:
            if kind == "/":
                yield from _walk(root, f"{folder}/{name}", levels - 1)


def _by_folder(sources: Mapping[str, str]) -> Iterable[tuple[str, dict[str, str]]]:
    folders: dict[str, dict[str, str]] = {}
    for path, digest in sources.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, {})[name] = digest
    return folders.items()
