"""The pipeline of the pack, compiled once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from swe_examples import definition_of


@pytest.fixture(scope="session")
def definition(tmp_path_factory):
    """Return the pipeline of the installed pack."""
    return definition_of(tmp_path_factory.mktemp("swe") / "workspace")
