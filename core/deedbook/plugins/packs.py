"""Packs: data in installed distributions, found through their record of files, read as data, never imported.

A pack is a folder of a distribution: an entry point of the group ``deedbook.packs`` names it like an importable
package, or the marker of Agent Plugins (``agent_plugins.json``) names it. Files that the distribution's record does not
list are ignored, even if they are in the folder.
"""

import csv
import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Protocol

from deedbook.format import canonical
from deedbook.format.errors import BindingError, FileRefused, IntakeError, fault
from deedbook.format.files import DirectoryEntry, Folder

from .groups import MARKER

MANIFEST: Final = "plugin.json"

_PACKAGE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_MAX_FILES: Final = 10_000
_MAX_MANIFEST: Final = 64 * 1024


class Distribution(Protocol):
    """The part of an installed distribution that packs need (`importlib.metadata.Distribution`)."""

    def read_text(self, filename: str) -> str | None:
        """Return a file of its metadata."""

    def locate_file(self, path: Any) -> Any:
        """Return the path of one of its files."""


class PackFolder(Folder):
    """The files of a pack as a read-only folder; *files* maps names below it to their paths."""

    __slots__ = ("_files", "_linked")

    def __init__(self, path: str, files: Mapping[str, Path], *, linked: bool = False) -> None:
        super().__init__(-1, path)
        self._files = dict(files)
        self._linked = linked

    def open(self, path: str) -> BinaryIO:
        """Open a file of the pack for reading."""
        if path not in self._files:
            if self.exists(path):
                raise FileRefused(fault("PATH_REFUSED", "is a folder; expected a regular file", place=path))
            raise FileNotFoundError(2, "No such file or directory", path)
        # An installer may link its files from a store of its own; the record lists them either way.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if self._linked else os.O_NOFOLLOW)
        try:
            fd = os.open(self._files[path], flags)
        except FileNotFoundError:
            raise FileRefused(fault("PATH_REFUSED", "is gone; install its distribution again", place=path)) from None
        except OSError as problem:
            raise FileRefused(fault("PATH_REFUSED", f"cannot be read: {problem.strerror}", place=path)) from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileRefused(fault("PATH_REFUSED", "is no regular file", place=path))
        return os.fdopen(fd, "rb")

    def scan(self, path: str = "") -> list[DirectoryEntry]:
        """List a folder of the pack, sorted by name; missing files are left out."""
        return [found for name in self.names(path) if (found := self._stat(f"{path}/{name}" if path else name))]

    def names(self, path: str = "") -> list[str]:
        """Return the names in a folder of the pack."""
        above = f"{path}/" if path else ""
        found = {name.removeprefix(above).partition("/")[0] for name in self._files if name.startswith(above)}
        if not found and path:
            raise FileNotFoundError(2, "No such file or directory", path)
        return sorted(found)

    def kinds(self, path: str = "") -> list[tuple[str, str]]:
        """Return the names in a folder of the pack, each with its kind: ``/`` a folder, ``-`` a file."""
        above = f"{path}/" if path else ""
        return [(name, "-" if f"{above}{name}" in self._files else "/") for name in self.names(path)]

    def all_names(self) -> tuple[str, ...]:
        """Return the paths of all its files."""
        return tuple(sorted(self._files))

    def exists(self, path: str) -> bool:
        """Return whether the pack has a file or a folder of that name."""
        return path in self._files or any(name.startswith(f"{path}/") for name in self._files)

    def without(self, hidden: Iterable[str]) -> "PackFolder":
        """Return the folder without the folders *hidden*."""
        gone = tuple(f"{path}/" for path in hidden)
        kept = {name: place for name, place in self._files.items() if not name.startswith(gone)}
        return PackFolder(self.path, kept, linked=self._linked)

    def replace(
        self,
        path: str,
        data: bytes | Iterable[bytes],
        *,
        expected: str | None = None,
        mode: int = 0o600,
        synced: bool = True,
    ) -> str:
        """Refuse the write: a pack is read-only."""
        del data, expected, mode, synced
        raise FileRefused(fault("PATH_REFUSED", "belongs to an installed pack, which is only read", place=path))

    def _stat(self, path: str) -> DirectoryEntry | None:
        name = path.rpartition("/")[2]
        if path not in self._files:
            return DirectoryEntry(name, folder=True, size=0)
        with suppress(OSError):
            seen = self._files[path].stat(follow_symlinks=self._linked)
            if stat.S_ISREG(seen.st_mode):
                return DirectoryEntry(name, folder=False, size=seen.st_size)
        return None


def pack_folder(distribution: Distribution, target: str, *, editable: bool) -> PackFolder:
    """Return the folder of a pack whose entry point is *target*; raises `BindingError`."""
    if not _PACKAGE.fullmatch(target):
        raise _error(f"names {target!r}; a pack's entry point names a package, such as acme_policies.data")
    within = target.replace(".", "/")
    if editable:
        return _editable_folder(_project_folder(distribution, within))
    recorded = _recorded_paths(distribution, within)
    if not recorded:
        raise _error(f"has no files below {within}/ in the record of its distribution; build it with its data in it")
    return PackFolder(within, recorded, linked=True)


def plugin_folder(distribution: Distribution, *, editable: bool) -> PackFolder:
    """Return the folder of an installed Agent Plugin; raises `BindingError`."""
    root, listed = _read_marker(distribution)
    if editable and Path(root).is_absolute():
        folder = _editable_folder(Path(root))
    else:
        recorded = {} if PurePosixPath(root).is_absolute() else _recorded_paths(distribution, root)
        lost = sorted(set(listed) - recorded.keys())
        if lost:
            raise _error(f"its {MARKER} lists {lost[0]!r}, which is not in the record of its distribution")
        folder = PackFolder(root, {name: recorded[name] for name in listed}, linked=True)
    _check_manifest(folder)
    return folder


def recorded_files(distribution: Distribution, *, editable: bool) -> frozenset[str]:
    """Return the paths of a distribution's files; for one installed in place, those of its project."""
    if editable:
        places = [_editable_folder(root) for root in _project_roots(distribution)]
        return frozenset(name for place in places for name in place.all_names())
    return frozenset(_names(distribution))


# --- where the files lie ----------------------------------------------------------------------------------------------


def _recorded_paths(distribution: Distribution, within: str) -> dict[str, Path]:
    """Return the recorded files below the folder *within*, by their name in it, including missing ones."""
    above = f"{within}/"
    return {
        name.removeprefix(above): Path(str(distribution.locate_file(name)))
        for name in _names(distribution)
        if name.startswith(above) and ".." not in PurePosixPath(name).parts
    }


def _names(distribution: Distribution) -> list[str]:
    """Return the paths in the record; `files` would leave out missing files."""
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    return [row[0] for row in rows if row and not row[0].endswith(".pyc")]


def _editable_folder(folder: Path) -> PackFolder:
    """Return a folder whose files are used in place instead of being installed."""
    files: dict[str, Path] = {}
    for above, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in names:
            place = Path(above, name)
            files[str(PurePosixPath(place.relative_to(folder)))] = place
        if len(files) > _MAX_FILES:
            raise _error(f"has more than {_MAX_FILES} files in {folder}")
    return PackFolder(str(folder), files)


def _project_folder(distribution: Distribution, within: str) -> Path:
    for root in _project_roots(distribution):
        if (root / within).is_dir():
            return root / within
    raise _error(f"is installed in place, and its folder {within}/ is not found; install its wheel")


def _project_roots(distribution: Distribution) -> list[Path]:
    """Return the folders that a distribution installed in place adds to the path with its own ``.pth`` files."""
    paths = [path for path in _names(distribution) if path.endswith(".pth")]
    texts = [Path(str(distribution.locate_file(path))).read_text(encoding="utf-8") for path in paths]
    lines = [Path(line.strip()) for text in texts for line in text.splitlines() if line.startswith("/")]
    return [line for line in lines if line.is_dir()]


def _read_marker(distribution: Distribution) -> tuple[str, list[str]]:
    """Read the marker of an Agent Plugin: its root, and the files below it."""
    try:
        marker = canonical.parse((distribution.read_text(MARKER) or "").encode())
    except IntakeError as problem:
        raise _error(f"its {MARKER} cannot be read: {problem}") from None
    root, files = (marker.get(key) if isinstance(marker, dict) else None for key in ("root", "files"))
    if not isinstance(root, str) or not isinstance(files, list) or not all(isinstance(name, str) for name in files):
        raise _error(f"its {MARKER} has no root and files; install a version that says which files belong to it")
    return root, files


def _check_manifest(folder: PackFolder) -> None:
    try:
        manifest = canonical.parse(folder.read(MANIFEST, limit=_MAX_MANIFEST))
    except FileNotFoundError:
        raise _error(f"has no {MANIFEST}") from None
    except IntakeError as problem:
        raise _error(f"its {MANIFEST} cannot be read: {problem}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("name"), str):
        raise _error(f"its {MANIFEST} has no name")


def _error(why: str) -> BindingError:
    return BindingError(fault("PLUGIN_BROKEN", why))
