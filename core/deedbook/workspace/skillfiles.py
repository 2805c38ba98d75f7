"""The files of a workspace's skills: which there are, the digest of each, and which of them cannot be read."""

from typing import Final

from deedbook.format.errors import DomainError

from .documents import MAX_BYTES
from .sources import CARD, MAX_SKILL, entries
from .trees import Reading, Tree

_LEVELS: Final = 4
"""How deep below a folder of skills a loader may find a file."""
_SKILL: Final = _LEVELS - 1
"""At this level stands the folder of one skill."""


class SkillFiles:
    """Takes the digests of what a skill loader may read: every SKILL.md and `.agent` card, or the *whole* folder.

    *unread* has what is wrong with a skill whose file or folder cannot be read, by its path. It is no fault, and has no
    digest: the compiler decides whether such a skill is required.
    """

    def __init__(self, reading: Reading, tree: Tree, *, whole: bool) -> None:
        self.unread: dict[str, DomainError] = {}
        self._reading = reading
        self._tree = tree
        self._whole = whole

    def read(self, root: str) -> None:
        """Take in the folder of skills *root*; that it cannot be listed itself is a fault."""
        self._folder(root, _LEVELS)

    def _folder(self, path: str, levels: int) -> None:
        found, faults = entries(self._tree.folder, path)
        for each in faults:
            self._refused(each, path, levels)
        if any(each.place == path for each in faults):
            return
        for entry in found:
            below = f"{path}/{entry.name}"
            if entry.folder and levels > 1:
                self._folder(below, levels - 1)
            elif entry.name == "SKILL.md":
                self._file(below)
            elif self._whole and not entry.folder and entry.size <= MAX_BYTES:
                self._reading.digest(self._tree, below)
        if levels < _LEVELS and self._tree.folder.exists(f"{path}/{CARD}"):
            self._file(f"{path}/{CARD}")

    def _refused(self, problem: DomainError, path: str, levels: int) -> None:
        """Take in what stands in the folder at *path* and can never be read, or that the folder itself cannot."""
        place = str(problem.place)
        if self._whole or (levels == _LEVELS and place == path):
            self._reading.faults.append(problem)
        elif levels == _LEVELS or (levels == _SKILL and (place == path or place.endswith("/SKILL.md"))):
            self.unread[place] = problem

    def _file(self, path: str) -> None:
        problem = self._reading.attempt(self._tree, path, MAX_SKILL)
        if problem:
            self.unread[path] = problem
