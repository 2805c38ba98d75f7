"""Hooks that are scripts: the faults of their declaration, and their files in the workspace."""

import os
import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deedbook.format.files import Folder

SCRIPTS_ONLY: Final = ("protocol", "env", "reads", "rewrites")
"""Keys that only hooks with scripts may have; a plugin declares these things itself."""

_CODE: Final = ("-c", "-e")
"""Options of interpreters that are followed by code, in which a slash has no meaning."""
_NO_PATH: Final = re.compile(r"-|.*(?:://|[\n\\\"'`$|<>();*?{}])", re.DOTALL)
"""An option, an address or code, which is not treated as a path."""


def problems(body: Mapping[str, Any], folder: Folder) -> Iterator[tuple[str, str]]:
    """Yield the faults of a hook, each with the JSON pointer of its place and what to do."""
    script = body["handler"].get("script")
    if script is None:
        for key in SCRIPTS_ONLY:
            if key in body:
                yield f"/{key}", f"{key}: belongs to scripts; a plugin declares this itself, leave it out"
        return
    if isinstance(script, str):
        yield "/handler/script", f"script: is a list, since no shell reads it; write {_as_list(script)}"
        return
    if body.get("isolation", "worker") != "worker":
        yield "/isolation", f"isolation {body['isolation']}: a script runs in a process of its own; leave it out"
    for index, each in enumerate(script):
        if ".." in Path(each).parts and (Path(folder.path) / each).is_file():
            why = f'"{each}" holds "..": write the path without it, so that the file is a source and is pinned'
            yield f"/handler/script/{index}", why
    program = script[0]
    if "/" in program and not program.startswith("/") and Path(program).as_posix() not in files(script, folder):
        yield "/handler/script/0", f'there is no file "{program}" in the workspace'


def find_missing(script: Sequence[str], root: Path, known: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield each argument that names a missing file below *root*: its index, and what to do.

    This applies to an argument with a slash and a file extension, and to one of *known*, the script files of the
    previous charter. A program without a slash is looked up on PATH.
    """
    for index, each in enumerate(script):
        place = _beneath(each, root)
        code = index > 0 and script[index - 1] in _CODE
        looks = "/" in each and "." in each.rpartition("/")[2] and not code and not _NO_PATH.match(each)
        if place is None or not (looks or (index and place in known)):
            continue
        if not os.path.exists(root / place):  # noqa: PTH110 - a name that is too long does not exist, either
            yield index, f'there is no "{each}" in the workspace; restore it, or correct the path'


def files(script: Sequence[str], folder: Folder) -> list[str]:
    """Return the arguments of a script that are files of the workspace: these are sources, and pinned by digest."""
    inside = Path(folder.path)
    found = []
    for each in script:
        path = Path(each)
        if path.is_absolute() and path.is_relative_to(inside):
            path = path.relative_to(inside)
        parts = path.parts
        if parts and not path.is_absolute() and ".." not in parts and (inside / path).is_file():
            found.append(path.as_posix())
    return list(dict.fromkeys(found))


def _beneath(each: str, root: Path) -> str | None:
    """Return a path relative to *root*, normalised; ``None`` if it leads elsewhere, or to *root* itself."""
    if each.startswith("/"):
        if not Path(each).is_relative_to(root):
            return None
        each = str(Path(each).relative_to(root))
    place = posixpath.normpath(each)
    return None if place in (".", "..") or place.startswith("../") else place


def _as_list(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        words = [text]
    return f"[{', '.join(words)}]"
