"""Commands of installed distributions: found and described without importing anything, loaded when they are called.

An entry point of the group ``deedbook.commands`` is a click command under the name that people type.
``ledger.checkpoint`` is the subcommand ``checkpoint`` of ``deedbook ledger``. Its module's docstring begins with the
line that help shows, and ``SECTION = "Record"`` in the module chooses the section of the help that lists it.
"""

import re
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from deedbook.format.errors import BindingError, describe, fault

from .groups import distribution_name

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint

GROUP: Final = "deedbook.commands"
_DOCSTRING: Final = re.compile(r'\s*(?:#.*\n\s*)*[rR]?"""\s*(.+?)\s*(?:\n|""")')
_SECTION: Final = re.compile(r'^SECTION(?:: \w+)? = "([^"\n]{1,40})"$', re.MULTILINE)
_NO_SECTION: Final = "Plugins"


@attrs.frozen
class OfferedCommand:
    """A command of one or more installed distributions, not imported."""

    name: str
    targets: tuple[str, ...]
    owners: tuple[str, ...]

    def load(self) -> Any:
        """Import the command; raises `BindingError` if two distributions provide it, or it does not load."""
        if len(self.targets) != 1:
            why = f"is offered by {' and '.join(self.owners)}; uninstall all but one"
            raise BindingError(fault("PLUGIN_BROKEN", f"deedbook {self._words} {why}"))
        try:
            from importlib_metadata import EntryPoint

            return EntryPoint(self.name, self.targets[0], GROUP).load()
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a plugin that calls sys.exit() must not end the command silently
            why = f"deedbook {self._words} does not load: {describe(problem)}; reinstall {self.owners[0]}"
            raise BindingError(fault("PLUGIN_BROKEN", why)) from None

    def describe(self) -> "Description":
        """Return the help of the command, read from its module's text."""
        if len(self.targets) != 1:
            return Description(f"offered by {' and '.join(self.owners)}; uninstall all but one", _NO_SECTION)
        source = _source(self.targets[0].partition(":")[0])
        text = source.read_text("utf-8", "replace") if source else ""
        line, section = _DOCSTRING.match(text), _SECTION.search(text)
        return Description(line[1] if line else "", section[1] if section else _NO_SECTION)

    @property
    def _words(self) -> str:
        return self.name.replace(".", " ")


@attrs.frozen
class Description:
    """The help of a command: one line, and its section."""

    line: str
    section: str


def find_commands() -> dict[str, OfferedCommand]:
    """Return the commands of installed distributions by name; unreadable distributions have none."""
    found: dict[str, dict[str, str]] = {}
    for owner, point in entry_points(GROUP):
        found.setdefault(point.name, {}).setdefault(point.value, owner)
    return {
        name: OfferedCommand(name, tuple(targets), tuple(dict.fromkeys(targets.values())))
        for name, targets in sorted(found.items())
    }


def entry_points(group: str) -> Iterator[tuple[str, "EntryPoint"]]:
    """Yield the entry points of a *group*, each with its distribution; unreadable distributions have none."""
    from importlib_metadata import distributions

    seen: set[str] = set()
    for distribution in distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
            if group not in text:
                continue
            owner = distribution_name(distribution)
            points: Iterable[EntryPoint] = distribution.entry_points.select(group=group)
        except Exception:  # noqa: BLE001, S112 - a partly removed package must not stop every command
            continue
        if owner not in seen:  # the first on the path counts, as for Python's own import
            seen.add(owner)
            yield from ((owner, point) for point in points)


def _source(module: str) -> Path | None:
    """Return the file of *module* without importing it or its packages; ``None`` if it has none."""
    first, *rest = module.split(".")
    try:
        spec = find_spec(first)
        name = first
        for part in rest:
            name = f"{name}.{part}"
            spec = PathFinder.find_spec(name, spec.submodule_search_locations) if spec else None
    except (ImportError, ValueError, AttributeError):
        return None
    place = Path(spec.origin) if spec and spec.origin else None
    return place if place and place.suffix == ".py" and place.is_file() else None
