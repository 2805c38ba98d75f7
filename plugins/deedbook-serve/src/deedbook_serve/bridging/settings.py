"""The settings file of a coding agent with or without the bridge's hooks; other content stays unchanged; pure.

An entry is ours if its command starts the bridge's client, and in a file for all projects only if it names this
workspace. So an installation can be repeated, moved and removed, and the hooks of others are never touched.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, Final

import attrs

from deedbook.format.canonical import parse
from deedbook.format.errors import DeedbookError, IntakeError, fault
from deedbook.format.pointers import find_value, split_pointer
from deedbook_serve.agents import GATES, TOOL_MOMENTS, CodingAgent, Event

CLIENT: Final = "bridging/client.py"
PROGRAM: Final = "deedbook-bridge"
"""The client as an installed program, found by its name on every machine."""
SPARE_SECONDS: Final = 5
"""Seconds that an agent gives the client beyond the client's own limit."""


@attrs.frozen(kw_only=True)
class HookSettings:
    """The command that an agent starts for a hook.

    The words of *program*, which waits *limit* seconds, for the agent called *name*. *workspace* is the workspace's
    folder if the file applies to all projects: in other folders the hook does nothing. *begin* is the initial content
    of a new file.
    """

    name: str
    program: tuple[str, ...]
    limit: int
    workspace: str = ""
    begin: Mapping[str, Any] = attrs.field(factory=dict)

    def build_command(self, event: Event) -> list[str]:
        """Return the command for one event as a list of words."""
        limit = self.limit if event.limit is None else min(self.limit, event.limit - 1)
        return [*self.program, "--limit", str(limit), self.name, event.name]

    def get_timeout(self, event: Event) -> int:
        """Return the time limit in seconds that the agent gives the hook of one event."""
        return self.limit + SPARE_SECONDS if event.limit is None else event.limit

    def build_shell_line(self, event: Event) -> str:
        """Return the shell command for one event; if the client cannot start, a refusable event is refused."""
        line = shlex.join(self.build_command(event))
        if _can_refuse(event):
            line += " || exit 2"
        return f'case "$(pwd -P)/" in {shlex.quote(f"{self.workspace}/")}*) {line} ;; esac' if self.workspace else line


def install_hooks(agent: CodingAgent, text: str, setting: HookSettings, *, place: str) -> str:
    """Return the settings *text* of *agent* with the bridge; raises `DeedbookError` (``BRIDGE_SETTINGS``).

    A correct entry keeps its position: some agents trust a hook by its position.
    """
    settings = {**setting.begin, **_read(text, place)}
    hooks = {event: list(groups) for event, groups in _get_hooks(settings, place).items()}
    for event in agent.installed_events:
        hooks[event.name] = _place_group(
            hooks.get(event.name, []), _build_group(agent, event, setting), setting.workspace
        )
    for name in hooks.keys() - {event.name for event in agent.installed_events}:
        hooks[name] = _remove_ours(hooks[name], setting.workspace)
    kept = {name: groups for name, groups in hooks.items() if groups or settings.get("hooks", {}).get(name) == []}
    return _serialize(text, settings, kept)


def remove_hooks(text: str, workspace: str = "", *, place: str) -> str:
    """Return the settings *text* without the bridge; raises `DeedbookError` (``BRIDGE_SETTINGS``)."""
    settings = _read(text, place)
    rest = {event: _remove_ours(groups, workspace) for event, groups in _get_hooks(settings, place).items()}
    return _serialize(
        text, settings, {event: groups for event, groups in rest.items() if groups or not settings["hooks"][event]}
    )


@attrs.frozen
class InstalledHook:
    """One hook of the bridge in a file: its event, its position among the event's hooks, and its entry."""

    event: str
    group: int
    index: int
    matcher: str | None
    entry: Mapping[str, Any]


def find_hooks(text: str, workspace: str = "", *, place: str) -> Iterator[InstalledHook]:
    """Yield the bridge's hooks in the settings *text*; raises `DeedbookError` (``BRIDGE_SETTINGS``)."""
    for event, groups in _get_hooks(_read(text, place), place).items():
        for number, group in enumerate(groups):
            for index, entry in enumerate(_get_entries(group)):
                if _is_ours(entry, workspace):
                    yield InstalledHook(event, number, index, group.get("matcher"), entry)


def find_commands(text: str, workspace: str = "", *, place: str) -> dict[str, str]:
    """Return the command of the bridge for each of its events; raises `DeedbookError` (``BRIDGE_SETTINGS``)."""
    return {found.event: found.entry["command"] for found in find_hooks(text, workspace, place=place)}


def find_outdated(agent: CodingAgent, text: str, setting: HookSettings, *, place: str) -> list[str]:
    """Return the events whose hook differs from the one that `install_hooks` would write; raises `DeedbookError`."""
    wanted = {event.name: _build_group(agent, event, setting) for event in agent.installed_events}
    names = []
    for event, groups in _get_hooks(_read(text, place), place).items():
        if any(_is_ours(each, setting.workspace) for group in groups for each in _get_entries(group)):
            rest = _place_group(groups, wanted[event], setting.workspace) if event in wanted else None
            names += [] if rest == groups else [event]
    return names


def find_disabling_settings(agent: CodingAgent, text: str, workspace: str = "", *, place: str) -> list[str]:
    """Return the settings in *text* that keep the agent from running hooks; raises `DeedbookError`."""
    settings, ours = _read(text, place), set(find_commands(text, workspace, place=place).values())
    disabling = []
    for pointer, off in agent.off.items():
        value = find_value(settings, pointer, None)
        listed = off == "$command" and isinstance(value, list) and any(each in ours for each in value)
        if listed or (type(value) is type(off) and value == off and off != "$command"):
            disabling.append(".".join(split_pointer(pointer)))
    return disabling


def is_bare(text: str, begin: Mapping[str, Any], *, place: str) -> bool:
    """Return whether the settings *text* has only the initial content of a new file."""
    return _read(text, place) in ({}, dict(begin))


def format_diff(before: str, after: str, name: str) -> str:
    """Return the change as a unified diff."""
    lines = unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="")
    return "\n".join(lines)


# --- helpers --------------------------------------------------------------------------------------------------------


def _can_refuse(event: Event) -> bool:
    return event.moment in GATES and "deny" in event.answers


def _build_group(agent: CodingAgent, event: Event, setting: HookSettings) -> dict[str, Any]:
    form = agent.entry
    entry = {
        "type": "command",
        "command": setting.build_shell_line(event),
        form.timeout: setting.get_timeout(event) * form.unit,
    }
    if _can_refuse(event):
        entry |= form.stopping
    if not form.grouped:
        return entry
    return {**({"matcher": "*"} if event.moment in TOOL_MOMENTS else {}), "hooks": [entry]}


def _read(text: str, place: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        settings = parse(text)
    except IntakeError as problem:
        raise _settings_error(
            f"{problem.error.message}; put the hooks in by hand, or make it plain JSON", place
        ) from None
    if not isinstance(settings, dict):
        raise _settings_error("it is no JSON object", place)
    return settings


def _get_hooks(settings: dict[str, Any], place: str) -> dict[str, list[Any]]:
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise _settings_error("its hooks are not as this agent's documentation has them", place)
    return hooks


def _place_group(groups: Sequence[Any], wanted: dict[str, Any], workspace: str) -> list[Any]:
    """Return the groups of an event with ours once: in place of the first that is only ours, else at the end."""
    result: list[Any] = []
    placed = False
    for group in groups:
        rest = _strip_group(group, workspace)
        result += rest or ([] if placed else [wanted])
        placed = placed or not rest
    return result if placed else [*result, wanted]


def _remove_ours(groups: Sequence[Any], workspace: str) -> list[Any]:
    return [rest for group in groups for rest in _strip_group(group, workspace)]


def _strip_group(group: Any, workspace: str) -> list[Any]:
    """Return a group without our hooks; no group if only ours were in it, or if it is itself ours (Copilot)."""
    if _is_ours(group, workspace):
        return []
    entries = _get_entries(group)
    rest = [each for each in entries if not _is_ours(each, workspace)]
    if len(rest) == len(entries):
        return [group]
    return [{**group, "hooks": rest}] if rest else []


def _get_entries(group: Any) -> Sequence[Any]:
    """Return the hooks of a group; an entry outside a group counts as a group of one."""
    entries = group.get("hooks") if isinstance(group, dict) else None
    if isinstance(entries, list):
        return entries
    return [group] if isinstance(group, dict) and "command" in group else ()


def _is_ours(entry: Any, workspace: str) -> bool:
    command = entry.get("command") if isinstance(entry, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    if not any(word.endswith(CLIENT) or word.rpartition("/")[2] == PROGRAM for word in words):
        return False
    return not workspace or f"{workspace}/*)" in words


def _serialize(before: str, settings: dict[str, Any], hooks: dict[str, list[Any]]) -> str:
    """Return the settings as JSON with the indentation of *before*; unchanged settings stay byte by byte."""
    result = {**settings, "hooks": hooks} if hooks or "hooks" in settings else dict(settings)
    if not hooks:
        result.pop("hooks", None)
    if result == settings and before.strip():
        return before
    first = next((line for line in before.splitlines()[1:] if line.strip()), "  ")
    indent = first[: len(first) - len(first.lstrip())] or "  "
    return f"{json.dumps(result, indent=indent, ensure_ascii=False)}\n"


def _settings_error(why: str, place: str) -> DeedbookError:
    return DeedbookError(fault("BRIDGE_SETTINGS", why, place=place))
