"""The pipeline of the pack, compiled once, and the files of the example, which are no tests of this repository."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from swe_examples import definition_of

collect_ignore = ["artifacts"]


@pytest.fixture(scope="session")
def definition(tmp_path_factory):
    """Return the pipeline of the installed pack."""
    return definition_of(tmp_path_factory.mktemp("swe") / "workspace")
