"""A real folder of skills, and a host on it that follows no link."""

import re
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import pytest

from deedbook import Failed, FolderEntry, Skill
from deedbook.format.errors import FileRefused
from deedbook.format.files import Folder
from deedbook_skill_markdown import Markdown


class FolderHost:
    """The part of a host that a skill loader needs."""

    def __init__(self, root: Path) -> None:
        self.folder = Folder.at(root)

    def open(self, path: str) -> BinaryIO:
        try:
            return self.folder.open(path)
        except FileRefused as problem:
            raise Failed(problem.error.code, problem.error.message) from None

    def scan(self, path: str) -> list[FolderEntry]:
        try:
            return [FolderEntry(f"{path}/{found.name}", found.folder, found.size) for found in self.folder.scan(path)]
        except FileRefused as problem:
            raise Failed(problem.error.code, problem.error.message) from None

    def secret(self, name: str) -> Any:
        raise AssertionError(f"the loader asked for the secret {name}")

    def replace(self, path: str, data: bytes, *, expected: str) -> str:
        raise AssertionError(f"the loader wrote {path}")


@attrs.frozen
class Workspace:
    """A folder whose skills stand under ``skills/``."""

    root: Path

    def host(self) -> FolderHost:
        return FolderHost(self.root)

    def put(self, name: str, text: str | bytes, file: str = "SKILL.md") -> None:
        folder = self.root / "skills" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())

    def load(self, *roots: str) -> list[Skill | Failed]:
        return list(Markdown({"roots": list(roots or ("skills",))}, self.host())())

    def load_one(self, front: str, body: str = "Body.\n") -> Skill | Failed:
        self.put("a", f"---\n{front}\n---\n{body}")
        (found,) = self.load()
        return found

    def skill(self, front: str, body: str = "Body.\n") -> Skill:
        found = self.load_one(front, body)
        assert isinstance(found, Skill), found
        return found

    def failure(self, front: str) -> str:
        found = self.load_one(front)
        assert isinstance(found, Failed), found
        assert found.code == "SOURCE_INVALID"
        return re.sub(r"^(\S+?:\d+):\d+:", r"\1:", str(found))  # columns have a test of their own


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def checkout() -> FolderHost:
    """Return a host on this repository."""
    return FolderHost(Path(__file__).parents[3])
