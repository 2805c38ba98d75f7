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


def digest_names(root: Folder, folders: Iterable[str]) -> str:
    """Return a digest of every name in *folders* and below, with its kind; missing folders also count."""
    total = sha256()
    for folder in folders:
        for place, names in _walk(root, folder, folder, _LEVELS):
            shown = "\0".join(f"{kind}{name}" for name, kind in names)
            total.update(f"{place}\n{shown}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def is_unchanged(root: Folder, sources: Mapping[str, str]) -> bool:
    """Return whether every file below *root* still has its digest; *sources* holds the SHA-256 of each, by path."""
    try:
        return all(_are_unchanged(root, above, folders) for above, folders in _by_folder(sources).items())
    except (OSError, FileRefused):
        return False


def _are_unchanged(root: Folder, above: str, folders: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether the files of *folders*, which are in the folder *above*, still have their digests."""
    if not above:
        return all(root.digests(name, files) == list(files.values()) for name, files in folders.items())
    with root.sub(above) as held:  # many small folders, such as those of agents, are reached in one step each
        return all(held.digests(name, files) == list(files.values()) for name, files in folders.items())


def _walk(above: Folder, name: str, place: str, levels: int) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the names in the folder *name* of *above*, and in the folders below it; *place* is its whole path."""
    try:
        names = [(each, kind) for each, kind in above.kinds(name) if each[0] != "." or each == _READ]
        yield place, names
        inner = [each for each, kind in names if kind == "/"] if levels > 1 else []
        if inner:
            with above.sub(name) as here:
                for each in inner:
                    yield from _walk(here, each, f"{place}/{each}", levels - 1)
    except (OSError, FileRefused) as problem:
        yield place, [(type(problem).__name__, "!")]


def _by_folder(sources: Mapping[str, str]) -> dict[str, dict[str, dict[str, str]]]:
    """Return the digests by the path above a file's folder, the folder's name, and the file's name."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for path, digest in sources.items():
        folder, _, name = path.rpartition("/")
        above, _, last = folder.rpartition("/")
        found.setdefault(above, {}).setdefault(last, {})[name] = digest
    return found
