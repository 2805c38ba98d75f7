"""The files of a workspace: find the workspace, and read YAML and Markdown strictly, without following links."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from deedbook.format.canonical import digest
from deedbook.format.copies import find_copy
from deedbook.format.errors import DeedbookError, DomainError, FileRefused, SignatureError, SourceError, fault
from deedbook.format.files import DirectoryEntry, Folder
from deedbook.format.ownership import OwnerCheck, UntrustedError

MAX_BYTES: Final = 64 * 1024
"""The largest file of YAML."""
SYSTEM: Final = ".system"
"""The folder that makes a folder a workspace."""
CARD: Final = ".agent"
"""The file with a short description of an agent."""
MAX_SKILL: Final = MAX_BYTES + 512 * 1024
"""The largest SKILL.md: front matter, which is YAML, and a text of 512 KiB."""
TESTS: Final = ".test.yaml"
"""The suffix of files with tests of the hooks or policies beside them. They are no sources."""

_OTHER_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    ".yaml": (".yml", ".yaml", ".json"),
    ".md": (".md", ".markdown"),
    ".json": (".json",),
}


def find_workspace(start: Path) -> Path:
    """Return the nearest folder from *start* upwards that holds ``.system/``.

    The search stops at a copy of a repository that Deedbook made. Who reads the workspace to run or decide also checks
    its owner (`trust.open_sources`). Raises `SourceError`: ``WORKSPACE_NOT_FOUND``, and ``WORKSPACE_UNTRUSTED`` in a
    copy.
    """
    here = start.resolve()
    is_there = here.exists()
    for folder in (here, *here.parents) if is_there else ():
        if _is_folder(folder / SYSTEM):
            _refuse_copy(here, folder)
            return folder
    problem = f"no folder {SYSTEM}/ in {here} or any folder above it" if is_there else f"there is no folder {here}"
    message = f"{problem}. Go to a folder of a workspace, or create one with: deedbook init"
    raise SourceError(fault("WORKSPACE_NOT_FOUND", message))


def _refuse_copy(start: Path, root: Path) -> None:
    """Raise `UntrustedError` if *start* is in a copy that Deedbook made, unless the user's list names *root*."""
    copy = find_copy(start)
    if copy is None or (root.is_relative_to(copy) and OwnerCheck(root).trusted):
        return
    why = (
        "is a copy of a repository, made by Deedbook; the search for a workspace stops there, and no .system/ in it "
        "is used. Name the workspace: deedbook -C DIR, or guard(…, workspace=DIR)"
    )
    raise UntrustedError(fault("WORKSPACE_UNTRUSTED", why, place=str(copy)))


def public_key(folder: Folder, path: str) -> tuple[str, str]:
    """Read the file of a principal's public key, one line; return the key and the file's SHA-256.

    Raises `SourceError` (``KEY_INVALID``) for any other content.
    """
    from deedbook.format.notes import VerifierKey

    try:
        raw = read(folder, path)
        return str(VerifierKey.parse(raw.decode().removesuffix("\n"))), digest(raw)
    except (UnicodeDecodeError, SignatureError, SourceError) as problem:
        why = problem.error.message if isinstance(problem, DeedbookError) else "not a key: it is no UTF-8"
        hint = f"`deedbook keys show NAME --out {path}` writes one"
        raise SourceError(fault("KEY_INVALID", f'the public key in "{path}": {why}. {hint}', place=path)) from None


def read(folder: Folder, path: str, limit: int = MAX_BYTES) -> bytes:
    """Return the bytes of a workspace file: regular, reached without links, at most *limit*. Raises `SourceError`."""
    try:
        return folder.read(path, limit=limit)
    except FileRefused as problem:
        raise _with_place(problem, path) from None
    except OSError as problem:
        raise _unreadable(problem, path) from None


def refuse_unreadable(folder: Folder) -> None:
    """Raise one `SourceError`, not one for each file, if ``.system`` cannot be read."""
    try:
        folder.scan(SYSTEM)
    except PermissionError:
        why = f"cannot be read: {os.strerror(errno.EACCES)}; let the user {os.geteuid()} read the folder and its files"
        raise SourceError(fault("SOURCE_INVALID", why, place=SYSTEM)) from None
    except (OSError, FileRefused):
        return  # each of its files reports its own error


def list_entries(folder: Folder, path: str) -> tuple[list[DirectoryEntry], list[DomainError]]:
    """List a folder of the workspace, without hidden names; a missing one is empty.

    An entry that can never be read (a link, a special file, a file with several names) is returned as a fault: a policy
    must not disappear because a link replaces it.
    """
    try:
        found = folder.scan(path)
        names = [name for name, _ in folder.kinds(path)]
    except FileNotFoundError:
        return [], []
    except FileRefused as problem:
        return [], list(_with_place(problem, path).errors)
    except OSError as problem:
        return [], list(_unreadable(problem, path).errors)
    readable = {entry.name for entry in found}
    why = "is a link, a special file or has several names; put a regular file in its place"
    left_out = sorted(name for name in names if name not in readable and not name.startswith("."))
    return (
        [entry for entry in found if not entry.name.startswith(".")],
        [
            fault("PATH_REFUSED", why, place=f"{path}/{_printable(name)}" if path else _printable(name))
            for name in left_out
        ],
    )


def list_files(folder: Folder, path: str, suffix: str) -> tuple[list[str], list[DomainError]]:
    """Return the paths of the files in a folder that end in *suffix*, and faults for files that look similar."""
    found, faults = list_entries(folder, path)
    paths = []
    for entry in found:
        where = f"{path}/{entry.name}"
        stem, extension = Path(entry.name).stem, Path(entry.name).suffix
        if entry.folder:
            if suffix == ".yaml":
                faults.append(fault("SOURCE_INVALID", "is a folder, which is not read; move its files up", place=where))
        elif extension == suffix:
            paths.append(where)
        elif extension.lower() in _OTHER_SPELLINGS[suffix]:
            why = f'is not read; rename it to "{stem}{suffix}"'
            faults.append(fault("SOURCE_INVALID", why, place=where))
    return paths, faults


def _with_place(problem: FileRefused, path: str) -> SourceError:
    """Return the error with *path*, the path within the workspace, as its place."""
    return SourceError(*(attrs.evolve(error, place=path) for error in problem.errors))


def _unreadable(problem: OSError, path: str) -> SourceError:
    reason = problem.strerror or type(problem).__name__
    return SourceError(fault("SOURCE_INVALID", f"cannot be read: {reason}", place=path))


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except PermissionError:
        return False
