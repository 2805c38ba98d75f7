"""Resolve the names in a skill's ``allowed-tools`` to abilities, or to commands of an ability; pure.

A name is an ability's id, or a tool of another runtime, which ``tool_aliases:`` maps to abilities. A pattern after a
name, as in ``Bash(git:*)``, allows some commands of an ability and never the whole ability. A name that matches no
ability grants nothing; the reason is kept.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from deedbook.format.schema import suggest
from deedbook.policy import commands
from deedbook.workspace.declarations import AbilitySource, AliasSource

DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Read": "file-read",
        "Write": "file-write",
        "Edit": "file-write",
        "MultiEdit": "file-write",
        "Glob": "file-find",
        "Grep": "file-search",
        "LS": "file-list",
    }
)
"""What skills usually call the standard file tools. A default counts only where the ability has that very handler.

Nothing here runs a shell: ``Bash`` grants nothing until a workspace maps it to an ability.
"""


@attrs.frozen
class Grants:
    """The *abilities* that a skill may use whole, its *commands* by ability and pointer, and *unresolved* names."""

    abilities: frozenset[str]
    commands: Mapping[str, Mapping[str, tuple[str, ...]]]
    unresolved: Mapping[str, str]

    def as_json(self) -> dict[str, dict[str, list[str]]]:
        """Return *commands* in the form of a charter."""
        return {name: {at: list(found) for at, found in pointers.items()} for name, pointers in self.commands.items()}


def resolve_grants(
    names: Iterable[str], aliases: Mapping[str, AliasSource], abilities: Mapping[str, AbilitySource]
) -> Grants:
    """Return what *names* (a skill's ``allowed-tools``) grant in a workspace with these *abilities*."""
    whole: set[str] = set()
    some: dict[str, dict[str, set[str]]] = {}
    without: dict[str, str] = {}
    for name in sorted(names):
        tool, _, pattern = name.removesuffix(")").partition("(")
        means = _resolve_name(tool, aliases, abilities)
        why = _obstacle(tool, pattern, means, abilities) if pattern else _unknown(tool, means, aliases, abilities)
        if why:
            without[name] = why
        elif pattern:
            for ability in means.abilities:
                some.setdefault(ability, {}).setdefault(means.command, set()).add(pattern)
        else:
            whole |= set(means.abilities)
    left = {ability: pointers for ability, pointers in some.items() if ability not in whole}
    commands_ = {
        ability: {pointer: tuple(sorted(found)) for pointer, found in sorted(pointers.items())}
        for ability, pointers in sorted(left.items())
    }
    return Grants(frozenset(whole), commands_, without)


def _resolve_name(tool: str, aliases: Mapping[str, AliasSource], abilities: Mapping[str, AbilitySource]) -> AliasSource:
    if tool in abilities:
        return AliasSource(name=tool, abilities=(tool,))
    if tool in aliases:
        return aliases[tool]
    usual = DEFAULTS.get(tool, "")
    same = usual in abilities and dict(abilities[usual].handler) == {"tool": usual}
    return AliasSource(name=tool, abilities=(usual,) if same else ())


def _unknown(
    tool: str, means: AliasSource, aliases: Mapping[str, AliasSource], abilities: Mapping[str, AbilitySource]
) -> str | None:
    if means.abilities:
        return None
    if tool.startswith("model/"):
        return "models are for roles; leave it out"
    if tool in aliases:
        return f"tool_aliases: {tool} names no ability ({aliases[tool].place})"
    near = suggest(tool, [*abilities, *aliases])
    return f"no ability or alias has this name{near}; map it with tool_aliases: {{{tool}: ABILITY}}"


def _obstacle(tool: str, pattern: str, means: AliasSource, abilities: Mapping[str, AbilitySource]) -> str | None:
    """Return why a name with a pattern grants nothing; ``None`` if it grants some commands."""
    if why := commands.problem(pattern):
        return f"the pattern fits no command: {why}"
    if means.command:
        return None if means.abilities else f"tool_aliases: {tool} names no ability ({means.place})"
    if tool in abilities:
        return "a pattern belongs to an alias that says which argument is the command; see tool_aliases"
    hint = f"tool_aliases: {{{tool}: {{ability: ABILITY, command: /ARGUMENT}}}}"
    return f"no alias names the argument that the pattern applies to; map it with {hint}"
