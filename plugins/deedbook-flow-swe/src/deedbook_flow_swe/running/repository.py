"""The repository of a task: a copy of the project, in which each unit becomes a commit."""

from typing import Any

import attrs

from deedbook import Run


@attrs.frozen
class Repository:
    """Calls the ability for git; every method raises `Failed`."""

    run: Run
    ability: str
    task: str
    project: str

    def open(self) -> str:
        """Make the copy if there is none, and return its commit."""
        return str(self._call("open")["commit"])

    def head(self) -> str:
        """Return the commit of the copy."""
        return str(self._call("head")["commit"])

    def apply(self, patch: str, allow: list[str]) -> None:
        """Apply a patch to the copy; it may change only files that fit *allow*."""
        self._call("apply", patch=patch, allow=allow)

    def commit(self, message: str) -> str:
        """Commit what was applied, and return the commit."""
        return str(self._call("commit", message=message)["commit"])

    def reset(self, commit: str) -> None:
        """Take the copy back to *commit*."""
        self._call("reset", commit=commit)

    def merge(self, message: str) -> str:
        """Merge the copy into the project, and return the commit."""
        return str(self._call("merge", message=message)["commit"])

    def _call(self, action: str, **more: Any) -> Any:
        return self.run.call(self.ability, {"action": action, "task": self.task, "project": self.project, **more})
