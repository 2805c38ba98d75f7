"""Copies of repositories that Deedbook made below a workspace: what they bring configures nothing.

A copy may hold a ``.system/`` of its own, and its agent may change every file in it. So the mark of a copy is outside
it, in the state folder ``.deedbook`` of the workspace that made it, where no tool writes.
"""

import os
from hashlib import sha256
from pathlib import Path
from typing import Final

from .files import Folder

_MARKS: Final = ".deedbook/copies"
_ROOT: Final = 0


def mark_copy(root: Folder, path: str) -> None:
    """Mark the folder at *path* in the workspace *root* as a copy; it need not exist yet."""
    root.replace(f"{_MARKS}/{_name(path)}", f"{path}\n".encode(), mode=0o600, synced=False)


def find_copy(start: Path) -> Path | None:
    """Return the copy that *start*, a resolved path, is in; ``None`` if it is in none.

    Only marks of root and of this process's user count: nobody else can stop a search.
    """
    for above in start.parents:
        marks = above / _MARKS
        try:
            owner = marks.stat().st_uid
        except OSError:
            continue
        if owner not in (_ROOT, os.geteuid()):
            continue
        below = [folder for folder in (start, *start.parents) if folder != above and folder.is_relative_to(above)]
        for folder in below:
            if (marks / _name(folder.relative_to(above).as_posix())).exists():
                return folder
    return None


def _name(path: str) -> str:
    return sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
