"""Hooks that are scripts, as YAML declares them: what is wrong with one, and which files of the workspace it is."""

import os
import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deedbook.format.files import Folder

SCRIPTS_ONLY: Final = ("protocol", "env", "reads", "rewrites")
"""Keys of a hook that belong to scripts; a plugin declares these things itself."""

_CODE: Final = ("-c", "-e")
"""Options of interpreters after which code stands, in which a slash says nothing."""
_NO_PATH: Final = re.compile(r"-|.*(?:://|[\n\\\"'`$|<>();*?{}])", re.DOTALL)
"""What is an option, an address or code: not taken for a path."""


def problems(body: Mapping[str, Any], folder: Folder) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a hook, each as the JSON pointer of its place and what to do."""
    script = body["handler"].get("script")
    if script is None:
        for key in SCRIPTS_ONLY:
            if key in body:
                yield f"/{key}", f"{key}: belongs to scripts; a plugin declares this itself, leave it out"
        return
    if isinstance(script, str):
        yield "/handler/script", f"script: is a list, since no shell reads it; write {_listed(script)}"
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


def lost(script: Sequence[str], root: Path, known: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield each argument that names something beneath *root* which is not there: its index, and what to do.

    That is one that holds a slash and ends as a file's name does, or one of *known*, the files of scripts in the
    charter before. A program without a slash is looked up elsewhere.
    """
    for index, each in enumerate(script):
        place = _beneath(each, root)
        code = index > 0 and script[index - 1] in _CODE
        looks = "/" in each and "." in each.rpartition("/")[2] and not code and not _NO_PATH.match(each)
        if place is None or not (looks or (index and place in known)):
            continue
        if not os.path.exists(root / place):  # noqa: PTH110 - a name too long to be one names nothing, either
            yield index, f'there is no "{each}" in the workspace; put it back, or write here where it is now'


def files(script: Sequence[str], folder: Folder) -> list[str]:
    """Return which of a script's arguments are files of the workspace: these are sources, and pinned by digest."""
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
    """Return a path as one beneath *root*, normal; ``None`` if it leads elsewhere, or to *root* itself."""
    if each.startswith("/"):
        if not Path(each).is_relative_to(root):
            return None
        each = str(Path(each).relative_to(root))
    place = posixpath.normpath(each)
    return None if place in (".", "..") or place.startswith("../") else place


def _listed(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        words = [text]
    return f"[{', '.join(words)}]"
