"""Workspaces with workflow files, copied for each test."""

import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

sys.path.insert(0, str(Path(__file__).parent))

WORKSPACES = Path(__file__).parent / "workspaces"


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies an example workspace and returns its folder."""
    return lambda name: Path(copytree(WORKSPACES / name, tmp_path / name))
