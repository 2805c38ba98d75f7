"""The files of a workspace's skills: their digests, and the errors of those that cannot be read."""

from typing import Final

from deedbook.format.errors import DomainError

from .sources import CARD, MAX_BYTES, MAX_SKILL, list_entries
from .trees import SourceReader, SourceTree

_LEVELS: Final = 4
"""How many levels below a folder of skills a loader may find a file."""
_SKILL: Final = _LEVELS - 1
"""The level of one skill's folder."""


class SkillFiles:
    """Records the digests of what a skill loader may read: every SKILL.md and `.agent` card, or the *whole* folder.

    *unread* has the error of each skill whose file or folder cannot be read, by its path. It is no fault and has no
    digest: the compiler decides whether such a skill is required.
    """

    def __init__(self, reader: SourceReader, tree: SourceTree, *, whole: bool) -> None:
        self.unread: dict[str, DomainError] = {}
        self._reader = reader
        self._tree = tree
        self._whole = whole

    def read(self, root: str) -> None:
        """Read the folder of skills *root*; a root that cannot be listed is a fault."""
        self._folder(root, _LEVELS)

    def _folder(self, path: str, levels: int) -> None:
        found, faults = list_entries(self._tree.folder, path)
        for each in faults:
            self._handle_refusal(each, path, levels)
        if any(each.place == path for each in faults):
            return
        for entry in found:
            below = f"{path}/{entry.name}"
            if entry.folder and levels > 1:
                self._folder(below, levels - 1)
            elif entry.name == "SKILL.md":
                self._file(below)
            elif self._whole and not entry.folder and entry.size <= MAX_BYTES:
                self._reader.digest(self._tree, below)
        if levels < _LEVELS and self._tree.folder.exists(f"{path}/{CARD}"):
            self._file(f"{path}/{CARD}")

    def _handle_refusal(self, problem: DomainError, path: str, levels: int) -> None:
        """Record an entry of the folder at *path* that can never be read, or that the folder itself cannot."""
        place = str(problem.place)
        if self._whole or (levels == _LEVELS and place == path):
            self._reader.faults.append(problem)
        elif levels == _LEVELS or (levels == _SKILL and (place == path or place.endswith("/SKILL.md"))):
            self.unread[place] = problem

    def _file(self, path: str) -> None:
        problem = self._reader.record_digest(self._tree, path, MAX_SKILL)
        if problem:
            self.unread[path] = problem
