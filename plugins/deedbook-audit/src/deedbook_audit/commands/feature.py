"""The feature `audit`: tells `deedbook doctor` whether charters and ledgers are sound."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl

if TYPE_CHECKING:
    from deedbook.cli.health import Check
    from deedbook.workspace.declarations import Workspace


class Audit:
    """Verifies what a workspace has recorded."""

    @featureimpl
    def examine(self, workspace: "Workspace") -> "Iterator[Check]":
        """Say whether charters are recorded, and which ledgers are sound."""
        from .doctor import check_records

        return check_records(workspace)
