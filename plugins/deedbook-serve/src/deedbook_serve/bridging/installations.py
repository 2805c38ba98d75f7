"""The files that can hold the hooks of a coding agent, in the project and in the user's home, and their content."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from deedbook.contract import Object
from deedbook.format.errors import DeedbookError, fault
from deedbook_serve.agents import CodingAgent, HookFile

from .settings import find_commands, find_disabling_settings

_MAX_SIZE: Final = 4 * 1024 * 1024


@attrs.frozen(kw_only=True)
class HookLocation:
    """One file that can hold hooks; *workspace* is the workspace's folder if the file applies to all projects."""

    file: HookFile
    path: Path
    workspace: str = ""


def list_locations(agent: CodingAgent, root: Path, environment: Mapping[str, str]) -> tuple[HookLocation, ...]:
    """Return the files that can hold hooks of *agent* for the workspace at *root*, the personal file first."""
    return tuple(locate(agent, file, root, environment) for file in (agent.personal, agent.project, *agent.others))


def locate(agent: CodingAgent, file: HookFile, root: Path, environment: Mapping[str, str]) -> HookLocation:
    """Return the location of *file* of *agent* for the workspace at *root*, in this *environment*."""
    if not file.is_shared:
        return HookLocation(file=file, path=root / file.path)
    return HookLocation(file=file, path=expand_home(agent, file.path, environment), workspace=str(root.resolve()))


def expand_home(agent: CodingAgent, path: str, environment: Mapping[str, str]) -> Path:
    """Return the path for a *path* that begins with ``~/``; a variable can move the folder of some agents."""
    for name, folder in agent.homes.items():
        if environment.get(name) and path.startswith(f"{folder}/"):
            return Path(environment[name], path[len(folder) + 1 :])
    return Path(environment.get("HOME") or "/", path.removeprefix("~/"))


def read_text(path: Path) -> str:
    """Return the text of a settings file, empty if there is none; raises `DeedbookError`."""
    if path.exists() and not path.is_file():
        raise _read_error("it is no regular file", path)
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_SIZE + 1).decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as problem:
        raise _read_error(str(problem), path) from None
    if len(text) > _MAX_SIZE:
        raise _read_error(f"it is larger than {_MAX_SIZE} bytes", path)
    return text


def _read_error(why: str, path: Path) -> DeedbookError:
    return DeedbookError(fault("BRIDGE_SETTINGS", f"cannot be read: {why}", place=str(path)))


class SettingsWatch:
    """The bridge's hooks in an agent's files at the first event of its session."""

    def __init__(self, agent: CodingAgent, root: Path, environment: Mapping[str, str]) -> None:
        self._agent = agent
        self._locations = list_locations(agent, root, environment)
        self._before = self._scan()

    def find_removed(self, hook_input: Object) -> str | None:
        """Return what a change of settings removed, or ``None``; *hook_input* is the agent's report of the change."""
        now, lost = self._scan(), []
        if missing := sorted(self._before.events - now.events):
            lost.append(f"the hooks of the bridge at {', '.join(missing)} are in none of its files any more")
        lost += sorted(now.off - self._before.off)
        path = hook_input.get("file_path")
        if isinstance(path, str) and not any(str(each.path) == path for each in self._locations):
            lost += self._check_other_file(Path(path))
        if not lost:
            self._before = now
        return "; ".join(lost) or None

    def _scan(self) -> "_HookState":
        texts = [(each, _read_or_empty(each.path)) for each in self._locations]
        names = {event for each, text in texts for event in _find_commands(text, each)}
        return _HookState(
            frozenset(names), frozenset(why for each, text in texts for why in self._describe_disabled(text, each.path))
        )

    def _describe_disabled(self, text: str, path: Path, only: str = "") -> Iterator[str]:
        try:
            off = find_disabling_settings(self._agent, text, only, place=str(path))
        except DeedbookError:
            return
        for each in off:
            yield f"{path} switches hooks off: {each}"

    def _check_other_file(self, path: Path) -> Iterator[str]:
        """Yield the settings that disable hooks in a file outside the known ones, such as an administrator's."""
        yield from self._describe_disabled(_read_or_empty(path), path)


@attrs.frozen
class _HookState:
    events: frozenset[str]
    off: frozenset[str]


def _read_or_empty(path: Path) -> str:
    try:
        return read_text(path)
    except DeedbookError:
        return ""


def _find_commands(text: str, location: HookLocation) -> Mapping[str, str]:
    """Return the bridge's hooks in a file; a file that an agent cannot read holds none."""
    try:
        return find_commands(text, location.workspace, place=str(location.path))
    except DeedbookError:
        return {}
