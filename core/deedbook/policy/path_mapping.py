"""Map paths between an agent or a server, which uses absolute paths, and the door, which uses paths from the root.

A path in the workspace is judged and recorded relative to the root, by its real location: a link that leads elsewhere
counts as elsewhere. A path outside stays absolute, so that no condition on paths holds for it.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format import canonical

from .conditions import split_argument


class PathMapper:
    """Maps the paths of one workspace at *root*."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)

    def to_relative(self, args: Object, pointers: Iterable[str], cwd: str = "") -> Any:
        """Return a copy of *args* with the paths at *pointers* relative to the root; relative ones begin at *cwd*."""
        return _change_paths(args, pointers, lambda path: self.inside(path, cwd))

    def to_absolute(self, args: Object, pointers: Iterable[str], given: Object, cwd: str = "") -> Any:
        """Return a copy of *args* with absolute paths; an unchanged path is returned as it was *given*."""
        came = {self.inside(path, cwd): path for path in _collect_paths(given, pointers)}
        return _change_paths(
            args, pointers, lambda path: came.get(path, path if path[:1] == "/" else self._outside(path))
        )

    def inside(self, path: str, cwd: str) -> str:
        """Return *path*, relative to *cwd* or absolute, as a path from the root, or absolute if it is outside."""
        if not path or path[0] == "~":
            return path
        if path[0] != "/":
            path = f"{cwd if cwd[:1] == '/' else self._root}/{path}"
        if "\0" in path:
            return path
        real = os.path.realpath(path)
        if real == self._root:
            return "."
        return real[len(self._root) + 1 :] if real.startswith(f"{self._root.rstrip('/')}/") else real

    def _outside(self, path: str) -> str:
        return os.path.normpath(f"{self._root}/{path}")


_IS_NO_PATH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:").match


@attrs.frozen(eq=False)
class ServerPaths:
    """The paths in the arguments of a server's tool, at *pointers*; relative ones begin at *cwd*, below the root.

    They are judged and recorded from the root. The server gets them as the caller gave them, or absolute if they are
    certainly *here*: a server may have another working folder. A text that begins like a URL is no path, and a path
    outside is unchanged: it may be a path in something else.
    """

    root: Path
    pointers: tuple[str, ...]
    cwd: str = ""
    here: bool = False

    def to_relative(self, raw: bytes, accepts: Callable[[Any], bool]) -> bytes:
        """Return the canonical arguments that are judged; unchanged if the tool would not *accept* the mapped ones."""
        args = canonical.decode(raw)
        if not isinstance(args, dict):
            return raw
        inner = _change_paths(args, self.pointers, self._inside)
        return canonical.encode(inner) if inner != args and accepts(inner) else raw

    def to_absolute(self, args: Object, given: bytes) -> Any:
        """Return judged arguments as the server gets them, for the *given* ones; a changed path is absolute."""
        paths = _collect_paths(canonical.decode(given), self.pointers)
        mapped = {each: self._server_path(path) for path in paths for each in (path, self._inside(path))}
        return _change_paths(args, self.pointers, lambda path: mapped.get(path) or self._absolute(path))

    def _inside(self, path: str) -> str:
        inner = path if _IS_NO_PATH(path) else self._real(path)
        return path if inner[:1] == "/" else inner

    def _server_path(self, path: str) -> str:
        is_final = not self.here or path[:1] in ("", "/", "~") or _IS_NO_PATH(path)
        return path if is_final else self._absolute(self._real(path))

    def _real(self, path: str) -> str:
        return PathMapper(self.root).inside(path, str(self.root / self.cwd))

    def _absolute(self, path: str) -> str:
        kept = path[:1] in ("", "/", "~") or _IS_NO_PATH(path)
        return path if kept else os.path.normpath(f"{os.path.realpath(self.root)}/{path}")


def _collect_paths(args: Object, pointers: Iterable[str]) -> list[str]:
    found: list[str] = []

    def note(path: str) -> str:
        found.append(path)
        return path

    _change_paths(args, pointers, note)
    return found


def _change_paths(args: Object, pointers: Iterable[str], change: Callable[[str], str]) -> Any:
    """Return a copy of *args* in which *change* is applied to each text, or list of texts, at *pointers*."""
    made: Any = canonical.decode(canonical.encode(dict(args)))
    for pointer in pointers:
        *steps, last = split_argument(pointer)
        here = made
        for step in steps:
            here = here.get(step) if isinstance(here, dict) else None
        if isinstance(here, dict) and last in here:
            here[last] = _each(here[last], change)
    return made


def _each(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    return [change(each) if isinstance(each, str) else each for each in value] if isinstance(value, list) else value
