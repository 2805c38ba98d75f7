"""What several tests share: modules importable by their names, and workspaces in which the command can be called."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commandline import Place, starter

from deedbook_testing.pages import Shell

WEAK = {
    "docs/guarantees.md": ["denied-path-spelling"],
    "docs/pipelines.md": ["SOURCE_INVALID"],
    "examples/guarded-files": ["denied-call"],
    "examples/process-ability": ["BINDING_INVALID"],
}
"""Pages that show a weakness, or end with a file that is refused, and what `deedbook doctor --guarantees` says then."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Give a copy of the repository's own workspace."""
    return starter(tmp_path / "workspace")


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace in which there was one run and then one call; for tests that only read."""
    made = starter(tmp_path_factory.mktemp("told") / "workspace")
    made.run("run", "Say hello to Ada", status=0)
    made.run("call", "echo", "--args", '{"text":"hi"}', status=0)
    return made


@pytest.fixture
def check_guarantees(pytestconfig: pytest.Config) -> Callable[[Shell, str], None]:
    """Give a function that attacks the workspace in which a page's commands were run; with ``--guarantees`` only."""

    def check(shell: Shell, page: str) -> None:
        if pytestconfig.getoption("guarantees"):
            argv = ["bash", "-c", "deedbook doctor --guarantees 2>&1"]
            said = subprocess.run(argv, cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE, text=True, check=False)
            broken = re.findall(r"^BROKEN .*\[(.*)\]$|^error: .*\[(.*)\]$", said.stdout, re.MULTILINE)
            assert ["".join(each) for each in broken] == WEAK.get(page, []), said.stdout
            assert bool(said.returncode) == (page in WEAK), said.stdout

    return check
