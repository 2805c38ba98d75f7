"""Find the skills that a workspace requires, so that it does not start without them; pure.

A skill that only lies in a folder of skills may be set aside. A skill is required if ``skills: {required: […]}``, the
choice from a pack, a link in a routing document, a policy condition or a memory zone names it.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from deedbook.format.errors import DomainError, fault
from deedbook.format.schema import suggest
from deedbook.workspace.declarations import PolicySource, Workspace

_NAMES: Final = re.compile(r"""["']([a-z0-9]+(?:-[a-z0-9]+)*)["']""").findall
_LOOKS: Final = re.compile(r"\bskill\b").search


class RequiredSkills:
    """The skills that *workspace* names."""

    def __init__(self, workspace: Workspace) -> None:
        self._required = workspace.required
        self._chosen = {pack.label: frozenset(pack.chosen) for pack in workspace.packs.values()}
        self._links = frozenset(link for section in workspace.sections.values() for link in section.links())
        self._claimed: set[str] = set()
        policies = workspace.policies.values()
        self._named = frozenset([*(name for policy in policies for name in _conditions(policy)), *_zones(workspace)])

    def claim(self, source: str, pack: str = "") -> bool:
        """Return whether the skill at *source* (its file or folder) is required; *pack* is the label of its pack.

        A claimed skill has a fault of its own, so `find_missing` does not report it again.
        """
        folder = source if not source.endswith(("/SKILL.md", "/.agent")) else source.rpartition("/")[0]
        name = folder.rpartition("/")[2]
        linked = not pack and not self._links.isdisjoint((folder, f"{folder}/SKILL.md"))
        named = name in self._required or name in self._named or name in self._chosen.get(pack, ())
        if named or linked:
            self._claimed.add(name)
        return named or linked

    def find_missing(self, skills: Collection[str]) -> Iterator[DomainError]:
        """Yield a fault for each required skill that is not among *skills*."""
        for name, place in self._required.items():
            if name not in skills and name not in self._claimed:
                known = ", ".join(sorted(skills)) or "none"
                why = f"skill {name!r} is required and is not offered{suggest(name, skills)}; skills: {known}"
                yield fault("BINDING_INVALID", why, place=place)


def _zones(workspace: Workspace) -> Iterator[str]:
    """Yield the skills that may read memory or propose to it."""
    section: Any = workspace.memory.section if workspace.memory else {}
    for zone in section.get("zones", {}).values():
        for callers in zone.values():
            for each in callers:
                yield from each.get("skills", ())


def _conditions(policy: PolicySource) -> Iterator[str]:
    """Yield the names in a policy's conditions that refer to the skill."""
    rules: Any = policy.settings.get("rules", ())
    for rule in rules if isinstance(rules, list) else ():
        when = rule.get("when") if isinstance(rule, dict) else None
        if isinstance(when, str) and _LOOKS(when):
            yield from _NAMES(when)
