"""Where the hooks of a coding agent can stand, and where they do: in files of a project, and of its person."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from deedbook.contract import Object
from deedbook.format.errors import DeedbookError, fault
from deedbook_serve.agents import HookFile, Known

from .settings import events, switched_off

_LARGEST: Final = 4 * 1024 * 1024


@attrs.frozen(kw_only=True)
class Place:
    """One file that can hold hooks; *only* is the workspace's folder where it is for all projects of a person."""

    file: HookFile
    path: Path
    only: str = ""


def places(known: Known, root: Path, environment: Mapping[str, str]) -> tuple[Place, ...]:
    """Return where hooks of *known* can stand for the workspace at *root*: one's own file first, then the project's."""
    return tuple(place(known, file, root, environment) for file in (known.personal, known.project, *known.others))


def place(known: Known, file: HookFile, root: Path, environment: Mapping[str, str]) -> Place:
    """Return where *file* of *known* is for the workspace at *root*, in this *environment*."""
    if not file.shared:
        return Place(file=file, path=root / file.path)
    return Place(file=file, path=moved(known, file.path, environment), only=str(root.resolve()))


def moved(known: Known, path: str, environment: Mapping[str, str]) -> Path:
    """Return where a *path* that begins with ``~/`` is; some agents let a variable move their folder."""
    for name, folder in known.homes.items():
        if environment.get(name) and path.startswith(f"{folder}/"):
            return Path(environment[name], path[len(folder) + 1 :])
    return Path(environment.get("HOME") or "/", path.removeprefix("~/"))


def text_of(path: Path) -> str:
    """Return the text of a file of settings, nothing where there is none; raises `DeedbookError`."""
    if path.exists() and not path.is_file():
        raise _unread("it is no regular file", path)
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1).decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as problem:
        raise _unread(str(problem), path) from None
    if len(text) > _LARGEST:
        raise _unread(f"it is larger than {_LARGEST} bytes", path)
    return text


def _unread(why: str, path: Path) -> DeedbookError:
    return DeedbookError(fault("BRIDGE_SETTINGS", f"cannot be read: {why}", place=str(path)))


class Watch:
    """Which hooks of ours stood in an agent's files when its session was first heard."""

    def __init__(self, known: Known, root: Path, environment: Mapping[str, str]) -> None:
        self._known = known
        self._places = places(known, root, environment)
        self._before = self._look()

    def taken_out(self, said: Object) -> str | None:
        """Return what a change of settings, of which the agent has *said* this much, took out; ``None``: nothing."""
        now, lost = self._look(), []
        if gone := sorted(self._before.events - now.events):
            lost.append(f"the hooks of the bridge at {', '.join(gone)} are in none of its files any more")
        lost += sorted(now.off - self._before.off)
        named = said.get("file_path")
        if isinstance(named, str) and not any(str(each.path) == named for each in self._places):
            lost += self._elsewhere(Path(named))
        if not lost:
            self._before = now
        return "; ".join(lost) or None

    def _look(self) -> "_Seen":
        found = [(each, _text(each.path)) for each in self._places]
        standing = {event for each, text in found for event in _events(text, each)}
        return _Seen(frozenset(standing), frozenset(why for each, text in found for why in self._off(text, each.path)))

    def _off(self, text: str, path: Path, only: str = "") -> Iterator[str]:
        try:
            off = switched_off(self._known, text, only, place=str(path))
        except DeedbookError:
            return
        for each in off:
            yield f"{path} switches hooks off: {each}"

    def _elsewhere(self, path: Path) -> Iterator[str]:
        """Yield what a file that is none of those known here, such as an administrator's, says against hooks."""
        yield from self._off(_text(path), path)


@attrs.frozen
class _Seen:
    events: frozenset[str]
    off: frozenset[str]


def _text(path: Path) -> str:
    try:
        return text_of(path)
    except DeedbookError:
        return ""


def _events(text: str, where: Place) -> Mapping[str, str]:
    """Return the hooks of ours in a file; a file that an agent cannot read holds none."""
    try:
        return events(text, where.only, place=str(where.path))
    except DeedbookError:
        return {}
