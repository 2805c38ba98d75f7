"""The state files of an agent: those that its card names must exist, and they hold no more than its budget allows.

A skill or a goal is an entry of the Markdown file that the card names, or a file of a folder. Counted are the file or
folder under ``state`` and, named or not, the folder ``skills`` or ``goals`` beside the card:

- of a folder: its ``.md`` files, and its folders (the Agent Skills form);
- of a file: its headings of level 2, or its list items at the left margin, whichever are more. Code and front matter
  do not count.
"""

import re
from collections.abc import Mapping
from typing import Final

from deedbook.format.files import DirectoryEntry

from .documents import Document
from .trees import SourceReader, SourceTree

COUNTED: Final = ("skills", "goals")
"""What a budget limits, as ``max_skills`` and ``max_goals``."""

_HEADING: Final = re.compile(r"##[ \t]+\S")
_ITEM: Final = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\S")
_RULE: Final = re.compile(r"([-*_])(?:[ \t]*\1){2,}[ \t]*")
_FRONT: Final = re.compile(r"---[ \t]*\n(?:.*\n)*?---[ \t]*(?:\n|\Z)")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


class AgentState:
    """The files in *folder*, the folder of one agent in *tree*."""

    def __init__(self, reader: SourceReader, tree: SourceTree, folder: str) -> None:
        self._reader, self._tree, self._folder = reader, tree, folder
        self._entries = {entry.name: entry for entry in reader.list_entries(tree, folder)}

    def has_file(self, name: str) -> bool:
        """Return whether the agent's folder has a file of that name."""
        entry = self._entries.get(name)
        return entry is not None and not entry.folder

    def check(self, card: Document, state: Mapping[str, str], budget: Mapping[str, int]) -> None:
        """Report each file under *state* that is missing, and each number in *budget* that is exceeded."""
        for key, name in state.items():
            if name not in self._entries and not self._tree.folder.exists(f"{self._folder}/{name}"):
                why = f"there is no {name} in {self._tree.display(self._folder)}; add it, or correct the name"
                self._refuse(f"state.{key}: {why}", card.place(f"/state/{key}"))
        for key in COUNTED:
            found, most = self._find(key, state.get(key)), budget[f"max_{key}"]
            if len(found) > most:
                why = f"at most {most} {key}, and there are {len(found)} (too many from {found[most]} on)"
                self._refuse(f"budget.max_{key}: {why}; remove some, or raise the budget", _place(card, key))

    def _find(self, key: str, named: str | None) -> list[str]:
        """Return where each skill or goal is: a file or folder, or a line of a file."""
        beside = key if key in self._entries and self._entries[key].folder else None
        names = dict.fromkeys(name for name in (named, beside) if name in self._entries)
        return [each for name in names for each in self._find_in(self._entries[str(name)])]

    def _find_in(self, entry: DirectoryEntry) -> list[str]:
        path = f"{self._folder}/{entry.name}"
        if entry.folder:
            inside = self._reader.list_entries(self._tree, path)
            return [f"{entry.name}/{each.name}" for each in inside if each.folder or each.name.endswith(".md")]
        raw = self._reader.read_bytes(self._tree, path) or b""
        return [f"{entry.name}:{line}" for line in find_entries(raw.decode("utf-8", "replace"))]

    def _refuse(self, why: str, place: str) -> None:
        self._reader.refuse("SOURCE_INVALID", why, place)


def find_entries(text: str) -> list[int]:
    """Return the lines, from 1, at which the entries of a Markdown *text* begin."""
    headings, items, fence = [], [], ""
    front = _FRONT.match(text)
    above = front[0].count("\n") if front else 0
    for number, line in enumerate(text.split("\n")[above:], above + 1):
        if fence:
            rest = line.strip()
            fence = "" if rest.startswith(fence) and not rest.strip(fence[0]) else fence
        elif opening := _FENCE.match(line):
            fence = opening[1]
        elif _HEADING.match(line):
            headings.append(number)
        elif _ITEM.match(line) and not _RULE.fullmatch(line):
            items.append(number)
    return headings if len(headings) >= len(items) else items


def _place(card: Document, key: str) -> str:
    """Return the place of the budget in the card, or of what it limits where the card leaves the budget out."""
    said = card.value.get("budget", {}) if isinstance(card.value, dict) else {}
    return card.place(f"/budget/max_{key}" if f"max_{key}" in said else f"/state/{key}")
