"""The settings file of a coding agent, with the bridge in it or without: what else stands there stays; pure.

An entry is ours if its command starts the bridge's client, and in a file for all projects only if it is for this
workspace. So an installation can be done again, moved and taken back, and hooks of others are never touched.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, Final

import attrs

from deedbook.format.canonical import parse
from deedbook.format.errors import DeedbookError, IntakeError, fault
from deedbook_serve.agents import GATES, OF_A_TOOL, Event, Known

CLIENT: Final = "bridging/client.py"
PROGRAM: Final = "deedbook-bridge"
"""The client as an installed program, found by its name on every machine."""
SPARE: Final = 5
"""Seconds that an agent gives the client beyond its own limit."""


@attrs.frozen(kw_only=True)
class Setting:
    """What an agent is to start: the words of a *program*, which waits *limit* seconds, for the agent called *name*.

    *only* is the workspace's folder where the file is for all projects: elsewhere, the hook does nothing. *begin* is
    what a new file begins with.
    """

    name: str
    program: tuple[str, ...]
    limit: int
    only: str = ""
    begin: Mapping[str, Any] = attrs.field(factory=dict)

    def words(self, event: Event) -> list[str]:
        """Return the command for one event, without what a shell does around it."""
        limit = self.limit if event.limit is None else min(self.limit, event.limit - 1)
        return [*self.program, "--limit", str(limit), self.name, event.name]

    def seconds(self, event: Event) -> int:
        """Return how long the agent is to wait for one event."""
        return self.limit + SPARE if event.limit is None else event.limit

    def command(self, event: Event) -> str:
        """Return the command for one event, as a shell reads it; what can be refused is, where nothing can start."""
        line = shlex.join(self.words(event))
        if _can_refuse(event):
            line += " || exit 2"
        return f'case "$(pwd -P)/" in {shlex.quote(f"{self.only}/")}*) {line} ;; esac' if self.only else line


def installed(known: Known, text: str, setting: Setting, *, place: str) -> str:
    """Return the settings *text* of *known* with the bridge in it; raises `DeedbookError` (``BRIDGE_SETTINGS``).

    What stands there already as it should stays where it is: some agents trust a hook by its place.
    """
    said = {**setting.begin, **_read(text, place)}
    hooks = {event: list(groups) for event, groups in _hooks(said, place).items()}
    for event in known.installed:
        hooks[event.name] = _placed(hooks.get(event.name, []), _group(known, event, setting), setting.only)
    for name in hooks.keys() - {event.name for event in known.installed}:
        hooks[name] = _others(hooks[name], setting.only)
    kept = {name: groups for name, groups in hooks.items() if groups or said.get("hooks", {}).get(name) == []}
    return _written(text, said, kept)


def removed(text: str, only: str = "", *, place: str) -> str:
    """Return the settings *text* without the bridge; raises `DeedbookError` (``BRIDGE_SETTINGS``)."""
    said = _read(text, place)
    left = {event: _others(groups, only) for event, groups in _hooks(said, place).items()}
    return _written(text, said, {event: groups for event, groups in left.items() if groups or not said["hooks"][event]})


@attrs.frozen
class Standing:
    """One hook of the bridge in a file: its event, where it stands among the event's hooks, and its entry."""

    event: str
    group: int
    index: int
    matcher: str | None
    entry: Mapping[str, Any]


def standing(text: str, only: str = "", *, place: str) -> Iterator[Standing]:
    """Yield the hooks of the bridge in the settings *text*; raises as the others do."""
    for event, groups in _hooks(_read(text, place), place).items():
        for number, group in enumerate(groups):
            for index, entry in enumerate(_entries(group)):
                if _is_ours(entry, only):
                    yield Standing(event, number, index, group.get("matcher"), entry)


def events(text: str, only: str = "", *, place: str) -> dict[str, str]:
    """Return the command of the bridge for each event that it is asked at; raises as the others do."""
    return {found.event: found.entry["command"] for found in standing(text, only, place=place)}


def outdated(known: Known, text: str, setting: Setting, *, place: str) -> list[str]:
    """Return the events at which another hook of the bridge stands than `installed` would put there; raises as that."""
    wanted = {event.name: _group(known, event, setting) for event in known.installed}
    found = []
    for event, groups in _hooks(_read(text, place), place).items():
        if any(_is_ours(each, setting.only) for group in groups for each in _entries(group)):
            rest = _placed(groups, wanted[event], setting.only) if event in wanted else None
            found += [] if rest == groups else [event]
    return found


def switched_off(known: Known, text: str, only: str = "", *, place: str) -> list[str]:
    """Return what in the settings *text* keeps an agent from running hooks; raises as the others do."""
    said, ours = _read(text, place), set(events(text, only, place=place).values())
    found = []
    for pointer, off in known.off.items():
        value: Any = said
        for step in pointer[1:].split("/"):
            value = value.get(step) if isinstance(value, dict) else None
        listed = off == "$command" and isinstance(value, list) and any(each in ours for each in value)
        if listed or (type(value) is type(off) and value == off and off != "$command"):
            found.append(pointer[1:].replace("/", "."))
    return found


def is_bare(text: str, begin: Mapping[str, Any], *, place: str) -> bool:
    """Say whether nothing stands in the settings *text* but what a new file begins with."""
    return _read(text, place) in ({}, dict(begin))


def difference(before: str, after: str, name: str) -> str:
    """Return what changes, as a unified diff."""
    lines = unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="")
    return "\n".join(lines)


# --- parts ------------------------------------------------------------------------------------------------------------


def _can_refuse(event: Event) -> bool:
    return event.moment in GATES and "deny" in event.answers


def _group(known: Known, event: Event, setting: Setting) -> dict[str, Any]:
    form = known.entry
    entry = {"type": "command", "command": setting.command(event), form.timeout: setting.seconds(event) * form.unit}
    if _can_refuse(event):
        entry |= form.stopping
    if not form.grouped:
        return entry
    return {**({"matcher": "*"} if event.moment in OF_A_TOOL else {}), "hooks": [entry]}


def _read(text: str, place: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        said = parse(text)
    except IntakeError as problem:
        raise _refused(f"{problem.error.message}; put the hooks in by hand, or make it plain JSON", place) from None
    if not isinstance(said, dict):
        raise _refused("it is no JSON object", place)
    return said


def _hooks(said: dict[str, Any], place: str) -> dict[str, list[Any]]:
    hooks = said.get("hooks", {})
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise _refused("its hooks are not as this agent's documentation has them", place)
    return hooks


def _placed(groups: Sequence[Any], wanted: dict[str, Any], only: str) -> list[Any]:
    """Return the groups of an event with ours once: in the place of the first that is ours alone, else at the end."""
    made: list[Any] = []
    placed = False
    for group in groups:
        left = _left(group, only)
        made += left or ([] if placed else [wanted])
        placed = placed or not left
    return made if placed else [*made, wanted]


def _others(groups: Sequence[Any], only: str) -> list[Any]:
    return [left for group in groups for left in _left(group, only)]


def _left(group: Any, only: str) -> list[Any]:
    """Return a group without ours; none, where nothing else was in it, or it is ours itself, as Copilot has them."""
    if _is_ours(group, only):
        return []
    entries = _entries(group)
    left = [each for each in entries if not _is_ours(each, only)]
    if len(left) == len(entries):
        return [group]
    return [{**group, "hooks": left}] if left else []


def _entries(group: Any) -> Sequence[Any]:
    """Return the hooks of a group; without groups, an entry stands for itself."""
    entries = group.get("hooks") if isinstance(group, dict) else None
    if isinstance(entries, list):
        return entries
    return [group] if isinstance(group, dict) and "command" in group else ()


def _is_ours(entry: Any, only: str) -> bool:
    command = entry.get("command") if isinstance(entry, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    if not any(word.endswith(CLIENT) or word.rpartition("/")[2] == PROGRAM for word in words):
        return False
    return not only or f"{only}/*)" in words


def _written(before: str, said: dict[str, Any], hooks: dict[str, list[Any]]) -> str:
    """Return the settings as JSON, indented as they were; what was asked for already stays byte by byte."""
    made = {**said, "hooks": hooks} if hooks or "hooks" in said else dict(said)
    if not hooks:
        made.pop("hooks", None)
    if made == said and before.strip():
        return before
    first = next((line for line in before.splitlines()[1:] if line.strip()), "  ")
    indent = first[: len(first) - len(first.lstrip())] or "  "
    return f"{json.dumps(made, indent=indent, ensure_ascii=False)}\n"


def _refused(why: str, place: str) -> DeedbookError:
    return DeedbookError(fault("BRIDGE_SETTINGS", why, place=place))
