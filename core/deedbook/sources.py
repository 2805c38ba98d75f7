"""The files of a workspace: where it is, and its YAML and Markdown, read strictly and without following links."""

from pathlib import Path
from typing import Final

import attrs

from .documents import MAX_BYTES, Document, parse_front_matter, parse_yaml
from .errors import FileRefused, SourceError, fault
from .files import Folder

SYSTEM: Final = ".system"


def find_workspace(start: Path) -> Path:
    """Return the nearest folder from *start* upwards that holds ``.system/``.

    Raises `SourceError` (``WORKSPACE_NOT_FOUND``).
    """
    here = start.absolute()
    for folder in (here, *here.parents):
        if _is_folder(folder / SYSTEM):
            return folder
    message = (
        f"no folder {SYSTEM}/ in {here} or any folder above it. "
        f"Go to a folder of a workspace, or begin one with {SYSTEM}/deedbook.yaml (docs/workspace.md)."
    )
    raise SourceError(fault("WORKSPACE_NOT_FOUND", message))


def load_yaml(folder: Folder, path: str) -> Document:
    """Read the YAML file at *path* beneath *folder*. Raises `SourceError` with every fault of the file."""
    return parse_yaml(read(folder, path), path)


def front_matter(folder: Folder, path: str) -> tuple[Document, str]:
    """Read a Markdown file: its front matter (a mapping, empty if there is none) and the text after it.

    The front matter is YAML between a first line ``---`` and the next line ``---``. Raises `SourceError`.
    """
    return parse_front_matter(read(folder, path), path)


def read(folder: Folder, path: str) -> bytes:
    """Return the bytes of a workspace file: regular, reached without links, at most 64 KiB. Raises `SourceError`."""
    try:
        return folder.read(path, limit=MAX_BYTES)
    except FileRefused as problem:
        raise SourceError(*(attrs.evolve(error, place=path) for error in problem.errors)) from None
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise SourceError(fault("SOURCE_INVALID", f"cannot be read: {reason}", place=path)) from None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except PermissionError:
        return False
