"""Paths between an agent or a server and the door: they say them absolutely, rules from the workspace's root.

What lies in the workspace is judged and recorded from its root on, by where it really is: a link that leads elsewhere
is elsewhere. What lies outside stays absolute, so that no condition on paths holds for it.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format import canonical


class PathMapper:
    """The paths of one workspace at *root*."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)

    def to_relative(self, args: Object, pointers: Iterable[str], cwd: str = "") -> Any:
        """Return a copy of *args* whose paths at *pointers* begin at the root; *cwd* is where relative ones begin."""
        return _changed(args, pointers, lambda path: self.inside(path, cwd))

    def to_absolute(self, args: Object, pointers: Iterable[str], given: Object, cwd: str = "") -> Any:
        """Return a copy of *args* whose paths are absolute again; one that nobody changed is as it was *given*."""
        came = {self.inside(path, cwd): path for path in _found(given, pointers)}
        return _changed(args, pointers, lambda path: came.get(path, path if path[:1] == "/" else self._outside(path)))

    def inside(self, path: str, cwd: str) -> str:
        """Return *path*, which begins at *cwd* if it is relative, from the root on, or absolute where it is outside."""
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
    """The paths among the arguments of a server's tool, at *pointers*; relative ones begin at *cwd*, below the root.

    They are judged and recorded from the root on, and the server is told them as the caller said them, or absolutely,
    where they are *here* for certain: a server may begin elsewhere. A text that begins like a URL is no path, and what
    lies outside stays as it was said: it may be a path in something else.
    """

    root: Path
    pointers: tuple[str, ...]
    cwd: str = ""
    here: bool = False

    def to_relative(self, raw: bytes, accepts: Callable[[Any], bool]) -> bytes:
        """Return arguments, canonical, as they are judged; as they came where the tool *accepts* no others."""
        args = canonical.decode(raw)
        if not isinstance(args, dict):
            return raw
        inner = _changed(args, self.pointers, self._inside)
        return canonical.encode(inner) if inner != args and accepts(inner) else raw

    def to_absolute(self, args: Object, given: bytes) -> Any:
        """Return judged arguments as the server is told them, who were *given*; a path that was changed is absolute."""
        said = _found(canonical.decode(given), self.pointers)
        told = {each: self._told(path) for path in said for each in (path, self._inside(path))}
        return _changed(args, self.pointers, lambda path: told.get(path) or self._absolute(path))

    def _inside(self, path: str) -> str:
        inner = path if _IS_NO_PATH(path) else self._real(path)
        return path if inner[:1] == "/" else inner

    def _told(self, path: str) -> str:
        said = not self.here or path[:1] in ("", "/", "~") or _IS_NO_PATH(path)
        return path if said else self._absolute(self._real(path))

    def _real(self, path: str) -> str:
        return PathMapper(self.root).inside(path, str(self.root / self.cwd))

    def _absolute(self, path: str) -> str:
        kept = path[:1] in ("", "/", "~") or _IS_NO_PATH(path)
        return path if kept else os.path.normpath(f"{os.path.realpath(self.root)}/{path}")


def _found(args: Object, pointers: Iterable[str]) -> list[str]:
    found: list[str] = []

    def note(path: str) -> str:
        found.append(path)
        return path

    _changed(args, pointers, note)
    return found


def _changed(args: Object, pointers: Iterable[str], change: Callable[[str], str]) -> Any:
    """Return a copy of *args* in which the text, or the texts of the list, at each of *pointers* are changed."""
    made: Any = canonical.decode(canonical.encode(dict(args)))
    for pointer in pointers:
        *steps, last = [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]
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
