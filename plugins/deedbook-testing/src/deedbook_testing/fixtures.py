"""The pytest plugin."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Give an empty workspace of its own to each test, and close what it opened."""
    made = Lab(tmp_path / "workspace")
    yield made
    made.close()
