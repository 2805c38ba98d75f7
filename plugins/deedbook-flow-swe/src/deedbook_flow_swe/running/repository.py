"""The repository of a task: a copy of the project, in which each unit becomes a commit."""

from typing import Any, Final

import attrs

from deedbook import Failed, Run

_ATTEMPTS: Final = 3
"""How often a merge is tried: after a crash, the tool may find that it was not made."""


MOVED: Final = "GIT_MOVED"
"""The code of a merge into a repository that has got other commits since the copy was updated."""


@attrs.frozen(kw_only=True)
class Update:
    """How the copy got the last commit of the repository, *head*: it has it if *merged*.

    Otherwise *conflicts* are the files that both sides changed; none if *head* does not follow the base of the copy.
    """

    head: str
    merged: bool
    conflicts: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Repository:
    """Calls the *ability* for git; every method raises `Failed`.

    *source* is the folder of the project's repository, *worktree* that of the task's copy.
    """

    run: Run
    ability: str
    source: str
    worktree: str

    def open(self) -> str:
        """Make the copy if there is none, and return the commit that it began with."""
        return str(self._call("open", repository=self.source)["base"])

    def head(self) -> str:
        """Return the last commit of the copy."""
        return str(self._call("head")["commit"])

    def apply(self, patch: str, allow: list[str]) -> None:
        """Apply a patch to the copy; it may change only files that fit *allow*."""
        self._call("apply", patch=patch, allow=allow)

    def commit(self, message: str) -> str:
        """Commit what was applied, and return the commit."""
        return str(self._call("commit", message=message)["commit"])

    def update(self) -> Update:
        """Bring the copy to the last commit of the project."""
        found = self._call("update", repository=self.source)
        return Update(head=str(found["head"]), merged=found["merged"], conflicts=tuple(found["conflicts"]))

    def reset(self, commit: str) -> None:
        """Take the copy back to *commit*."""
        self._call("reset", commit=commit)

    def merge(self, head: str, message: str) -> str:
        """Merge the copy into the project, whose last commit has to be *head*; return the commit."""
        commit = self.head()
        for _ in range(_ATTEMPTS):
            made = self._call("merge", repository=self.source, head=head, commit=commit, message=message)
            if made["merged"]:
                return str(made["commit"])
        raise Failed("GIT_FAILED", f"{self.source}: the merge was not made", retryable=True)

    def _call(self, action: str, **more: Any) -> Any:
        return self.run.call(self.ability, {"action": action, "worktree": self.worktree, **more})
