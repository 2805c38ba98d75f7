"""The pytest plugin."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from deedbook.format.schema import Schemas, data_folder

from .file_audit import FileAudit
from .lab import Lab
from .watching import Audit

if TYPE_CHECKING:
    from deedbook_guard import Guard


DEFAULT: Final = "default: {write: allow}\n"
"""What no policy covers is decided by this line."""


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


@pytest.fixture
def program_guard(tmp_path: Path) -> Iterator[Callable[..., "Guard"]]:
    """Give a function that makes a workspace for the program ``crew`` and returns its guard, which is closed later.

    Its arguments are the rule for *unknown* tools, the *name* of the folder, and *more* YAML for ``deedbook.yaml``.
    """
    from deedbook_guard import guard  # noqa: PLC0415 - only the tests of adapters need it

    made: list[Guard] = []

    def make(unknown: str = "allow", name: str = "crew", more: str = "") -> "Guard":
        place = tmp_path / name
        (place / ".system").mkdir(parents=True)
        default = "" if "default:" in more else DEFAULT
        program = f"agents: {{crew: {{kind: program, unknown_tools: {unknown}}}}}\n"
        text = f"schema_version: v1\n{program}{default}{more}"
        (place / ".system/deedbook.yaml").write_text(text, encoding="utf-8")
        made.append(guard("crew", workspace=place))
        return made[-1]

    yield make
    for each in made:
        each.close()
