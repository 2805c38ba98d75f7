"""Open what decides in a workspace, and check the programs that it names: nobody else may own or write them.

`format.ownership` says who may. What is only read from a record is opened without these checks.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from deedbook.format.files import Folder
from deedbook.format.ownership import OwnerCheck

_PROGRAMS: Final = ("argv", "command", "script")
"""The keys of settings whose values name a program and its arguments."""


@contextmanager
def open_sources(root: Path) -> Iterator[Folder]:
    """Open the workspace at *root*; every folder and file that is read below it is checked.

    Raises `UntrustedError` if others own or may write one of them, or could replace the workspace; also if a reader
    has collected that error among other faults, or has set aside the file.
    """
    check = OwnerCheck(root)
    check.above()
    try:
        with Folder.at(root, check=check) as folder:
            yield folder
    finally:
        if check.refused:
            raise check.refused[0]


def hold_sources(root: Path) -> Folder:
    """Open the workspace at *root* as `open_sources` does, for a reader that stops at its first error."""
    check = OwnerCheck(root)
    check.above()
    return Folder.at(root, check=check)


def open_state(root: Path, state: Path, *, create: bool = False) -> Folder:
    """Open the *state* folder of the workspace at *root*, with *create* made if missing; raises `UntrustedError`."""
    check = OwnerCheck(state, (root,))
    folder = Folder.at(state, create=create, check=check)
    try:
        if state.is_relative_to(root):
            for each in state.relative_to(root).parents[:-1]:
                check.path(root / each)
        else:
            check.above()
    except BaseException:
        folder.close()
        raise
    return folder


def check_own(root: Path) -> None:
    """Raise `UntrustedError` if others own or may write the workspace at *root*, or the folder of its settings."""
    from .sources import SYSTEM

    with open_sources(root) as folder:
        folder.kinds(SYSTEM)


def check_search_path(root: Path) -> None:
    """Raise `UntrustedError` if others may write a folder in the workspace from which Python imports plugins."""
    check = OwnerCheck(root)
    for each in map(Path, sys.path):
        if each != root and each.is_relative_to(root):
            check.below(each)


def check_programs(settings: Any, root: Path) -> None:
    """Raise `UntrustedError` if others may write a program in the workspace at *root* that *settings* name.

    So may nobody else write a file there that is an argument of a program, such as a script of an interpreter, unless a
    placeholder gives its name.
    """
    check, folder = OwnerCheck(root), settings.get("cwd", "") if isinstance(settings, dict) else ""
    for each in set(_words(settings)):
        if not each or "{" in each or "\0" in each:
            continue
        for start in {root, root / folder}:
            named = Path(os.path.normpath(start / each))
            for place in {named, Path(os.path.realpath(named))}:
                if place.is_relative_to(root) and os.path.isfile(place):  # noqa: PTH113 - a name may be too long
                    check.below(place)


def _words(settings: Any) -> Iterator[str]:
    """Yield the words of each command in *settings*."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _texts(value) if key in _PROGRAMS else _words(value)
    elif isinstance(settings, list):
        for each in settings:
            yield from _words(each)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
