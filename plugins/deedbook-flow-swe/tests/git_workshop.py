"""A workspace with a project's repository, and calls of the tools through a real door."""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

from deedbook.format.errors import Err

COPY, PROJECT = "tasks/t-1/worktree", "repos/shop"
_AUTHOR = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"}
_QUIET = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", **_AUTHOR}
ABILITIES = {
    "git": {"summary": "git.", "handler": {"tool": "swe-git"}},
    "read": {"summary": "read.", "handler": {"tool": "swe-read"}},
    "write": {"summary": "write.", "handler": {"tool": "swe-write"}},
    "move": {"summary": "move.", "handler": {"tool": "swe-move"}, "paths": ["/paths", "/to"]},
    "patch": {"summary": "patch.", "handler": {"tool": "swe-patch"}},
    "slice": {"summary": "slice.", "handler": {"tool": "swe-slice"}, "paths": ["/root"]},
}


def git(folder: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run git as a person would, without their configuration."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=_QUIET, input=stdin, capture_output=True, text=True, check=True
    )
    return done.stdout


def make_project(root: Path) -> Path:
    """Make the repository `repos/shop` with one commit, and the folder of the task `t-1`."""
    project = root / PROJECT
    (project / "shop").mkdir(parents=True)
    (project / "shop/price.py").write_text("def total(prices):\n    return sum(prices)\n")
    (project / "shop/__init__.py").write_text("")
    (project / "README.md").write_text("# Shop\n")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "feat: begin")
    (root / "tasks/t-1").mkdir(parents=True)
    (root / "tasks/t-1/META.yaml").write_text("id: t-1\n")
    return project


def patch_of(path: str, old: str, new: str) -> str:
    """Return a patch that changes one line."""
    return f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n"


README = patch_of("README.md", "# Shop", "# The shop")


class Calls:
    """Calls of abilities in one session."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __call__(self, ability: str, /, **args: Any) -> Any:
        result = self._session.call(ability, args)
        assert not isinstance(result, Err), result.error
        return result.value

    def fails(self, ability: str, /, **args: Any) -> Any:
        result = self._session.call(ability, args)
        assert isinstance(result, Err), result
        return result.error


def hashes(root: Path, *without: str) -> dict[str, str]:
    """Return the digest of every file below *root*, of links their target; *without* are folders left out."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name.startswith(without):
            continue
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
