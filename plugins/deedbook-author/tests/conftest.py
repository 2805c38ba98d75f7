"""Workspaces in which the commands are called."""

from pathlib import Path

import pytest
from commandline import Place, starter


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Give a copy of the starter."""
    return starter(tmp_path / "workspace")


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace in which there was one run and then one call; for tests that only read."""
    made = starter(tmp_path_factory.mktemp("told") / "workspace")
    made.run("run", "Say hello to Ada", status=0)
    made.run("call", "echo", "--args", '{"text":"hi"}', status=0)
    return made
