"""From front matter to a `Skill`: the open Agent Skills form, with what a runtime needs beyond it.

``name``, ``description``, ``license``, ``compatibility``, ``allowed-tools`` and ``metadata`` are the open form's keys
(https://agentskills.io/specification). ``triggers``, ``plugin``, ``version`` and ``schema_version`` may stand at top
level or under ``metadata``, where portable skills have them. Of Claude Code's further keys those are known that
restrict nothing: they are kept with the metadata. An unknown key is refused, since it may restrict.
"""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from deedbook import Failed, Json, Skill

from .frontmatter import Front

MAX_DESCRIPTION: Final = 1024
MAX_ITEMS: Final = 100
MAX_TRIGGER: Final = 100
MAX_CAPABILITIES: Final = 10

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TOOL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}(?:\([^()\x00-\x1f\x7f]{1,200}\))?")
_TOOLS: Final = re.compile(r"(?:[^\s,(]|\([^()]*\)?)+").findall
_MANUAL: Final = "disable-model-invocation"
_HINTS: Final = ("argument-hint", "arguments", "when_to_use", "model", "effort", "user-invocable", _MANUAL)
"""Keys of Claude Code's skills (https://code.claude.com/docs/en/skills) that take no tool away and add no guard."""
_KEPT: Final = ("license", "compatibility", "plugin", "version", "schema_version", *_HINTS)
_KNOWN: Final = frozenset({"name", "description", "allowed-tools", "metadata", "triggers", *_KEPT})
_CARD: Final[Mapping[str, str]] = MappingProxyType(
    {"identity": "name", "domain": "description", "capabilities": "allowed-tools"}
)
_CARD_KEPT: Final = ("state", "budget")


class Faults(Exception):  # noqa: N818 - what it holds
    """Everything that is wrong with a skill: *found* has a `Failed` for each."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Failed] = []

    def attempt(self, make: Callable[..., Any], *args: object) -> Any:
        """Return what *make* returns, or take what it fails with."""
        try:
            return make(*args)
        except Failed as problem:
            if str(problem) not in map(str, self.found):
                self.found.append(problem)
            return None


def skill(front: Front, body: str, folder: str) -> Skill:
    """Return the skill that a SKILL.md in *folder* declares. Raises `Failed` or `Faults`."""
    _check_keys(front, _KNOWN)
    return _skill(front, body, folder)


def card(front: Front, body: str, folder: str) -> Skill:
    """Return what an ``.agent`` card in *folder* declares, with ``metadata.card: agent``.

    It has a skill's keys, or ``identity``, ``domain``, ``capabilities`` (at most ten), ``state`` and ``budget``.
    """
    _check_keys(front, _KNOWN | set(_CARD) | set(_CARD_KEPT))
    capabilities = front.values.get("capabilities", [])
    if isinstance(capabilities, list) and len(capabilities) > MAX_CAPABILITIES:
        raise front.wrong("capabilities", f"more than {MAX_CAPABILITIES}; a card is for one specialist")
    for key, name in _CARD.items():
        if {key, name} <= set(front.values):
            raise front.wrong(key, f"means the same as {name}; keep one")
    values = {_CARD.get(key, key): value for key, value in front.values.items()}
    places = {_CARD.get(key, key): place for key, place in front.places.items()}
    return _skill(Front(front.path, values, places), body, folder, {"card": "agent"}, (*_KEPT, *_CARD_KEPT))


def _skill(
    front: Front, body: str, folder: str, more: Mapping[str, Json] | None = None, kept: tuple[str, ...] = _KEPT
) -> Skill:
    faults = Faults()
    faults.attempt(_check_version, front)
    said = {
        "name": faults.attempt(_name, front, folder),
        "description": faults.attempt(_description, front),
        "allowed": faults.attempt(_read_allowed_tools, front),
        "triggers": faults.attempt(_triggers, front),
        "metadata": faults.attempt(_metadata, front, kept),
    }
    if faults.found:
        raise faults
    return Skill(**{**said, "metadata": {**said["metadata"], **(more or {})}}, body=body, source=front.path)


def _check_keys(front: Front, known: frozenset[str]) -> None:
    for key in front.values:
        if key not in known:
            near = get_close_matches(key, sorted(known), 1)
            hint = f"did you mean {near[0]}?" if near else "own settings belong under metadata"
            raise front.wrong(key, f"not a key of a skill; {hint}")


def _name(front: Front, folder: str) -> str:
    name = _text(front, "name", 64)
    if not _NAME.fullmatch(name):
        raise front.wrong("name", f"{name!r} is not lower-case letters and digits, in words joined by single hyphens")
    if name != folder:
        raise front.wrong("name", f"{name} stands in the folder {folder}; they have to be equal")
    return name


def _description(front: Front) -> str:
    return _text(front, "description", MAX_DESCRIPTION)


def _text(front: Front, key: str, limit: int) -> str:
    value = front.values.get(key)
    if not isinstance(value, str) or not value.strip() or len(value) > limit:
        raise front.wrong(key, f"a text of 1 to {limit} characters is needed")
    return value


def _check_version(front: Front) -> None:
    if front.values.get("schema_version", "v1") != "v1":
        raise front.wrong("schema_version", "only v1 is known")
    if not isinstance(front.values.get("version", ""), str | int):
        raise front.wrong("version", "a whole number or a text is needed")
    for key in ("license", "compatibility", "plugin"):
        if not isinstance(front.values.get(key, ""), str):
            raise front.wrong(key, "a text is needed")


def _read_allowed_tools(front: Front) -> frozenset[str]:
    """Return ``allowed-tools``: a list, or a text with spaces or commas between the names.

    A name may have a pattern behind it, as in ``Bash(git add:*)``; what both mean, the kernel says. Without the key it
    is empty: nothing is allowed.
    """
    if "allowed-tools" not in front.values:
        return frozenset()
    said = front.values["allowed-tools"]
    listed = _items(front, "allowed-tools", _TOOLS(said) or [""] if isinstance(said, str) else said, "list")
    for name in listed:
        if not _TOOL.fullmatch(name):
            why = "is no name of a tool; write a name such as file-read, or a name and a pattern such as Bash(git:*)"
            raise front.wrong("allowed-tools", f"{name[:80]!r} {why}")
    return frozenset(listed)


def _triggers(front: Front) -> tuple[str, ...]:
    """Return ``triggers``, a list, or under ``metadata`` a list or a text with commas.

    A skill that has to be named (``disable-model-invocation``) has none.
    """
    metadata = _mapping(front)
    manual = front.values.get(_MANUAL, metadata.get(_MANUAL, False))
    if not isinstance(manual, bool):
        raise front.wrong(_MANUAL if _MANUAL in front.values else "metadata", f"{_MANUAL}: true or false is needed")
    if manual:
        return ()
    if "triggers" in front.values and "triggers" in metadata:
        raise front.wrong("triggers", "stands here and under metadata; keep one")
    if "triggers" in front.values:
        return _check_triggers(front, "triggers", _items(front, "triggers", front.values["triggers"], "list"))
    if "triggers" in metadata:
        return _check_triggers(front, "metadata", _items(front, "metadata", metadata["triggers"], ","))
    return ()


def _check_triggers(front: Front, key: str, triggers: list[str]) -> tuple[str, ...]:
    for trigger in triggers:
        if "*" in trigger or not any(map(str.isalnum, trigger)):
            raise front.wrong(key, f"trigger {trigger[:80]!r} would fit anything; use a word of the request")
        if len(trigger) > MAX_TRIGGER or not trigger.isprintable():
            raise front.wrong(key, f"trigger {trigger[:80]!r} is not 1 to {MAX_TRIGGER} printable characters")
    return tuple(dict.fromkeys(triggers))


def _items(front: Front, key: str, value: Json, separator: str | None) -> list[str]:
    """Return a list of texts; a text is split at *separator* (``None``: white space, ``list``: never)."""
    if isinstance(value, str) and separator != "list":
        value = value.split() if separator is None else [item.strip() for item in value.split(separator)]
        value = value or [""]
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise front.wrong(key, f"a list of at most {MAX_ITEMS} texts is needed")
    for item in value:
        if not isinstance(item, str) or not item.strip():
            raise front.wrong(key, f"{item!r} is not a text that says something")
    return [item.strip() for item in value]


def _mapping(front: Front) -> dict[str, Any]:
    metadata = front.values.get("metadata", {})
    if not isinstance(metadata, dict):
        raise front.wrong("metadata", "a mapping is needed")
    return metadata


def _metadata(front: Front, kept: tuple[str, ...]) -> dict[str, Any]:
    metadata = _mapping(front)
    for key in kept:
        if key in front.values and metadata.get(key, front.values[key]) != front.values[key]:
            raise front.wrong(key, "stands here and, otherwise, under metadata; keep one")
    return {**metadata, **{key: front.values[key] for key in kept if key in front.values}}
