"""The settings file of a coding agent, with the bridge in it or without: what else stands there stays; pure.

An entry is ours if its command starts the bridge's client. So an installation can be done again, moved and taken back,
and hooks of others are never touched.
"""

import json
import shlex
from collections.abc import Sequence
from difflib import unified_diff
from typing import Any, Final

import attrs

from deedbook.canonical import parse
from deedbook.errors import DeedbookError, IntakeError, fault

from .agents import Known, Moment

CLIENT: Final = "bridging/client.py"
_SPARE: Final = 5
"""Seconds that an agent gives the client beyond its own limit."""
_STOPPING: Final[frozenset[Moment]] = frozenset({"before", "prompt", "compact"})


@attrs.frozen(kw_only=True)
class Setting:
    """What an agent is to start: *python* and the *client*, which finds the runtime in *state* and waits *limit* s."""

    name: str
    python: str
    client: str
    state: str
    limit: int

    def words(self, event: str) -> list[str]:
        """Return the command for one event."""
        options = ["--state", self.state, "--limit", str(self.limit)]
        return [self.python, "-I", "-S", self.client, *options, self.name, event]

    def command(self, event: str) -> str:
        """Return the command for one event, as a shell reads it."""
        return shlex.join(self.words(event))


def installed(known: Known, text: str, setting: Setting, *, place: str) -> str:
    """Return the settings *text* of *known* with the bridge in it; raises `DeedbookError` (``BRIDGE_SETTINGS``)."""
    said = _begun(known) | _read(text, place)
    hooks = _without(said, place)
    for event, moment in known.events.items():
        hooks.setdefault(event, []).append(_group(known, event, moment, setting))
    return _written(text, said, hooks)


def removed(text: str, *, place: str) -> str:
    """Return the settings *text* without the bridge; raises `DeedbookError` (``BRIDGE_SETTINGS``)."""
    said = _read(text, place)
    return _written(text, said, _without(said, place))


def events(text: str, *, place: str) -> dict[str, str]:
    """Return the command of the bridge for each event that it is asked at; raises as the others do."""
    found: dict[str, str] = {}
    for event, groups in _hooks(_read(text, place), place).items():
        for entry in (each for group in groups for each in _entries(group) if _is_ours(each)):
            found[event] = entry["command"]
    return found


def outdated(known: Known, text: str, setting: Setting, *, place: str) -> list[str]:
    """Return the events at which another hook of the bridge stands than `installed` would put there; raises as that."""
    found: dict[str, list[Any]] = {}
    for event, groups in _hooks(_read(text, place), place).items():
        if ours := [each for group in groups for each in _entries(group) if _is_ours(each)]:
            found[event] = ours
    wanted = {event: list(_entries(_group(known, event, moment, setting))) for event, moment in known.events.items()}
    return [event for event, ours in found.items() if ours != wanted.get(event)]


def is_bare(known: Known, text: str, *, place: str) -> bool:
    """Say whether nothing stands in the settings *text* but what `installed` begins a new file with."""
    return _read(text, place) in ({}, _begun(known))


def difference(before: str, after: str, name: str) -> str:
    """Return what changes, as a unified diff."""
    lines = unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="")
    return "\n".join(lines)


# --- parts ------------------------------------------------------------------------------------------------------------


def _begun(known: Known) -> dict[str, Any]:
    return {"version": 1} if known.dialect == "copilot" else {}


def _group(known: Known, event: str, moment: Moment, setting: Setting) -> dict[str, Any]:
    seconds = setting.limit + _SPARE
    entry: dict[str, Any] = {"type": "command", "command": setting.command(event)}
    if known.dialect == "copilot":
        return {**entry, "timeoutSec": seconds}
    entry["timeout"] = seconds * 1000 if known.dialect == "gemini" else seconds
    if known.agent == "claude-code" and moment in _STOPPING:
        entry["onFailure"] = "block"
    of_a_tool = moment in ("before", "dialogue", "after", "failed", "refused")
    return {**({"matcher": "*"} if of_a_tool else {}), "hooks": [entry]}


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


def _without(said: dict[str, Any], place: str) -> dict[str, list[Any]]:
    """Return the hooks without ours, and without what holds nothing any more because of that."""
    kept: dict[str, list[Any]] = {}
    for event, groups in _hooks(said, place).items():
        left = [one for group in groups for one in _others(group)]
        if left or not groups:
            kept[event] = left
    return kept


def _others(group: Any) -> list[Any]:
    """Return a group without ours; none, where nothing else was in it, or it is ours itself, as Copilot has them."""
    if _is_ours(group):
        return []
    entries = _entries(group)
    left = [each for each in entries if not _is_ours(each)]
    if len(left) == len(entries):
        return [group]
    return [{**group, "hooks": left}] if left else []


def _entries(group: Any) -> Sequence[Any]:
    if _is_ours(group):
        return [group]
    entries = group.get("hooks") if isinstance(group, dict) else None
    return entries if isinstance(entries, list) else ()


def _is_ours(entry: Any) -> bool:
    command = entry.get("command") if isinstance(entry, dict) else None
    try:
        return isinstance(command, str) and any(word.endswith(CLIENT) for word in shlex.split(command))
    except ValueError:
        return False


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
