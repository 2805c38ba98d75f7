"""Commands of installed distributions: found and described without importing anything, loaded when they are called.

An entry point of the group ``deedbook.commands`` is a click command under the name that people type.
``ledger.checkpoint`` is the subcommand ``checkpoint`` of ``deedbook ledger``. Its module's docstring begins with the
line that help shows, and ``SECTION = "Record"`` in the module chooses the section of the help that lists it.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, Final, NamedTuple

from .groups import distribution_name, normalise_name

GROUP: Final = "deedbook.commands"
_DOCSTRING: Final = re.compile(r'\s*(?:#.*\n\s*)*[rR]?"""\s*(.+?)\s*(?:\n|""")')
_SECTION: Final = re.compile(r'^SECTION(?:: \w+)? = "([^"\n]{1,40})"$', re.MULTILINE)
_TARGET: Final = re.compile(r"([\w.]+)\s*:\s*([\w.]+)\s*(?:\[.*\])?")
_METADATA: Final = (".dist-info", ".egg-info")
_NO_SECTION: Final = "Plugins"


class OfferedCommand(NamedTuple):
    """A command of one or more installed distributions, not imported."""

    name: str
    targets: tuple[str, ...]
    owners: tuple[str, ...]

    def load(self) -> Any:
        """Import the command; raises `BindingError` if two distributions provide it, or it does not load."""
        from deedbook.format.errors import BindingError, describe_crash, fault

        if len(self.targets) != 1:
            why = f"is offered by {' and '.join(self.owners)}; uninstall all but one"
            raise BindingError(fault("PLUGIN_BROKEN", f"deedbook {self._words} {why}"))
        try:
            return _load(self.targets[0])
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a plugin that calls sys.exit() must not end the command silently
            why = f"deedbook {self._words} does not load: {describe_crash(problem)}; reinstall {self.owners[0]}"
            raise BindingError(fault("PLUGIN_BROKEN", why)) from None

    def describe(self) -> "Description":
        """Return the help of the command, read from its module's text."""
        if len(self.targets) != 1:
            return Description(f"offered by {' and '.join(self.owners)}; uninstall all but one", _NO_SECTION)
        text = _read_source(self.targets[0].partition(":")[0].strip())
        line, section = _DOCSTRING.match(text), _SECTION.search(text)
        return Description(line[1] if line else "", section[1] if section else _NO_SECTION)

    @property
    def _words(self) -> str:
        return self.name.replace(".", " ")


class Description(NamedTuple):
    """The help of a command: one line, and its section."""

    line: str
    section: str


def find_commands() -> dict[str, OfferedCommand]:
    """Return the commands of installed distributions by name; unreadable distributions have none."""
    found: dict[str, dict[str, str]] = {}
    for owner, name, target in entry_points(GROUP):
        found.setdefault(name, {}).setdefault(target, owner)
    return {
        name: OfferedCommand(name, tuple(targets), tuple(dict.fromkeys(targets.values())))
        for name, targets in sorted(found.items())
    }


def entry_points(group: str) -> Iterator[tuple[str, str, str]]:
    """Yield the entry points of a *group*: distribution, name, target; unreadable distributions have none.

    Every command of Deedbook needs this before it can begin, and importing a library for metadata takes longer than
    reading all entry points of a usual installation. That library is used only for what is not a folder.
    """
    seen: set[str] = set()
    for owner, text in _entry_point_files() if _only_folders() else _library_files():
        if group not in text or owner in seen:
            continue
        seen.add(owner)  # the first on the path counts, as for Python's own import
        yield from ((owner, name, target) for name, target in _parse(text, group))


def _only_folders() -> bool:
    """Return whether all distributions are in folders of the path: none is in an archive or has a finder of its own."""
    archives = any(os.path.isfile(place) for place in sys.path)
    return not archives and not any(_has_distributions(finder) for finder in sys.meta_path)


def _has_distributions(finder: object) -> bool:
    """Return whether an import *finder* brings distributions that are in no folder of the path."""
    usual = finder is PathFinder or type(finder).__module__ == "importlib_metadata"
    return not usual and hasattr(finder, "find_distributions")


def _entry_point_files() -> Iterator[tuple[str, str]]:
    """Yield each distribution in the folders of the path that has entry points, with the text of the file."""
    for place in dict.fromkeys(sys.path):
        try:
            names = sorted(os.listdir(place or "."))
        except OSError:
            continue
        for name in names:
            stem, extension = os.path.splitext(name)
            if extension.lower() not in _METADATA:
                continue
            try:
                with open(os.path.join(place, name, "entry_points.txt"), encoding="utf-8") as file:
                    yield normalise_name(stem.partition("-")[0]), file.read()
            except (OSError, ValueError):  # it has none, or is partly removed, which must not stop every command
                continue


def _library_files() -> Iterator[tuple[str, str]]:
    """Yield each distribution that has entry points, wherever it is, with the text of the file."""
    from importlib_metadata import distributions

    for distribution in distributions():
        try:
            yield distribution_name(distribution), distribution.read_text("entry_points.txt") or ""
        except Exception:  # noqa: BLE001, S112 - a partly removed package must not stop every command
            continue


def _parse(text: str, group: str) -> Iterator[tuple[str, str]]:
    """Yield the names and targets in one section of the text of ``entry_points.txt``."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line.strip("[]")
        elif section == group and "=" in line and not line.startswith("#"):
            name, _, target = line.partition("=")
            yield name.strip(), target.strip()


def _load(target: str) -> Any:
    """Import what an entry point names: ``module:attribute``."""
    form = _TARGET.fullmatch(target)
    if form is None:
        raise ValueError(f"{target!r} is not MODULE:NAME")
    found: Any = import_module(form[1])
    for name in form[2].split("."):
        found = getattr(found, name)
    return found


def _read_source(module: str) -> str:
    """Return the text of *module* without importing it or its packages; empty if it has none."""
    tail = os.path.join(*module.split("."))
    for place in sys.path:
        for file in (f"{tail}.py", os.path.join(tail, "__init__.py")):
            with suppress(OSError), open(os.path.join(place, file), encoding="utf-8", errors="replace") as source:
                return source.read()
    return _find_source(module)


def _find_source(module: str) -> str:
    """Return the text of a *module* in no folder of the path, such as one of an editable installation."""
    from importlib.util import find_spec

    first, *rest = module.split(".")
    try:
        spec = find_spec(first)
        name = first
        for part in rest:
            name = f"{name}.{part}"
            spec = PathFinder.find_spec(name, spec.submodule_search_locations) if spec else None
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            return ""
        with open(spec.origin, encoding="utf-8", errors="replace") as source:
            return source.read()
    except (ImportError, ValueError, AttributeError, OSError):
        return ""
