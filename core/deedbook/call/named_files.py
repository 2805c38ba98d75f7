"""The files that an approved program is started with: their digests are part of the request, and are compared again.

Only files that the command line names literally are found: a script, a configuration. What these read or import is not.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from deedbook.contract import Object, ProgramStarter
from deedbook.format.errors import recordable

MAX_BYTES: Final = 64 * 1024 * 1024
"""A larger file is not pinned."""
MOST: Final = 100
"""How many files and how many unpinned words a request names."""


def describe_program(handler: Any, args: Object, root: Path) -> dict[str, Any] | None:
    """Return which files the program of a call names, for the request that a person decides about.

    ``files`` has the digest of each file in the workspace at *root*, by path; ``unpinned`` the program if it is none of
    them, and other words that name files which have no digest. ``None`` if *handler* starts no program.
    """
    if not isinstance(handler, ProgramStarter):
        return None
    try:
        argv, folder = handler.command_line(args)
    except Exception:  # noqa: BLE001 - the call itself reports what is wrong with it
        return None
    files: dict[str, str] = {}
    unpinned: list[str] = []
    for index, word in enumerate(argv):
        place = _find(word, folder, root, is_program=index == 0)
        digest = _digest(root, place) if place is not None and len(files) < MOST else None
        if digest is not None and place is not None:
            files[place] = digest
        elif index == 0 or place is not None or _exists(word, root / folder):
            unpinned.append(recordable(word))
    return {"files": files, "unpinned": unpinned[:MOST]}


def find_changed(program: Object, root: Path) -> Iterator[str]:
    """Yield the files of a request's *program* whose content is not the approved one any more."""
    yield from (place for place, digest in program["files"].items() if _digest(root, place) != digest)


def _find(word: str, folder: str, root: Path, *, is_program: bool) -> str | None:
    """Return the path, from *root*, of the file there that *word* names; ``None`` if it names none."""
    if is_program and "/" not in word:
        return None  # it is found on PATH
    for text in _readings(word):
        place = Path(os.path.normpath(root / folder / text))
        if place.is_relative_to(root) and place.is_file():
            return place.relative_to(root).as_posix()
    return None


def _readings(word: str) -> Sequence[str]:
    """Return what of *word* may be a path: all of it, what is behind ``--option=``, and behind ``@``."""
    behind = word.partition("=")[2] if word[:1] == "-" else word[1:] if word[:1] == "@" else ""
    return [text for text in (word, behind) if text and "\0" not in text and len(text) < 4096]


def _exists(word: str, folder: Path) -> bool:
    return any((folder / text).is_file() for text in _readings(word))


def _digest(root: Path, place: str) -> str | None:
    """Return the SHA-256 of a file; ``None`` if it cannot be read, is too large, or lies behind a link elsewhere."""
    path = root / place
    if not path.is_file() or not path.resolve().is_relative_to(root.resolve()):
        return None
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if not S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                return None
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
