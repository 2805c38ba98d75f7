"""Paths between an agent and the door: an agent says them absolutely, rules say them from the workspace's root.

What lies in the workspace is judged and recorded from its root on, by where it really is: a link that leads elsewhere
is elsewhere. What lies outside stays absolute, so that no condition on paths holds for it.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from deedbook import canonical
from deedbook.contracts import Object


class Ways:
    """The paths of one workspace at *root*."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)

    def inward(self, args: Object, pointers: Iterable[str], cwd: str = "") -> Any:
        """Return a copy of *args* whose paths at *pointers* begin at the root; *cwd* is where relative ones begin."""
        return _changed(args, pointers, lambda path: self._inside(path, cwd))

    def outward(self, args: Object, pointers: Iterable[str], given: Object, cwd: str = "") -> Any:
        """Return a copy of *args* whose paths are absolute again; one that nobody changed is as it was *given*."""
        came = {self._inside(path, cwd): path for path in _found(given, pointers)}
        return _changed(args, pointers, lambda path: came.get(path, path if path[:1] == "/" else self._outside(path)))

    def _inside(self, path: str, cwd: str) -> str:
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
