"""Workspaces in any number, as a property needs them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deedbook.format.schema import Schemas
from deedbook_testing import Lab


@pytest.fixture
def make_lab(tmp_path_factory: pytest.TempPathFactory, kernel_schemas: Schemas) -> Iterator[Callable[[], Lab]]:
    """Return what makes a lab; all are closed, and what they recorded is verified."""
    made: list[Lab] = []

    def make() -> Lab:
        made.append(Lab(Path(tmp_path_factory.mktemp("lab")) / "workspace", kernel_schemas))
        return made[-1]

    yield make
    for each in made:
        each.close()
