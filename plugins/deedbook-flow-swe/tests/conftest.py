"""Workspaces with a pipeline, copied for each test."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pipelines import copy_workspace


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return the folder of a workspace with a pipeline of three phases, which a test may change."""
    return copy_workspace("small", tmp_path / "small")
