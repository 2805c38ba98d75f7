"""The pytest plugin."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deedbook.format.schema import Schemas, data_folder

from .file_audit import FileAudit
from .lab import Lab
from .watching import Audit


@pytest.fixture(scope="session")
def kernel_schemas() -> Schemas:
    """Give the kernel's own schemas; they are compiled when first needed, once for all tests."""
    return Schemas.load(data_folder("schemas"))


@pytest.fixture(scope="session")
def deedbook_file_audit() -> FileAudit:
    """Return what sees the files that handlers open by themselves; one for all tests, as `deedbook_audit`."""
    return FileAudit()


@pytest.fixture(scope="session")
def deedbook_audit() -> Audit:
    """Give what forbids files, sockets and processes for a while."""
    return Audit()


@pytest.fixture
def lab(tmp_path: Path, kernel_schemas: Schemas) -> Iterator[Lab]:
    """Give an empty workspace of its own to each test; then close what it opened, and verify what it recorded."""
    made = Lab(tmp_path / "workspace", kernel_schemas)
    yield made
    made.close()
