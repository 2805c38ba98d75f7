"""A git repository with a change that linters have something to say about, and the pack in its workspace."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commandline import Place, starter

AUTHOR = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")


def commit(folder: Path, files: dict[str, str]) -> None:
    """Write *files*, and commit everything in *folder*."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for command in (["add", "-A"], [*AUTHOR, "commit", "-q", "--no-verify", "-m", "a change"]):
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", *command], cwd=folder, env=environment, check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[dict[str, str], dict[str, str]], Place]:
    """Return a function that makes a workspace: a repository with two commits, the starter, and the pack."""

    def make(before: dict[str, str], after: dict[str, str]) -> Place:
        place = starter(tmp_path / "project")
        place.configure("schema_version: v1\n", "schema_version: v1\npacks: [review]\n")
        (place.path / ".gitignore").write_text(".deedbook/\n.system/\nreports/\n", encoding="utf-8")
        subprocess.run(["git", "init", "-q"], cwd=place.path, check=True)
        commit(place.path, before)
        commit(place.path, after)
        return place

    return make
