"""The feature `audit`: checks charters and ledgers for `deedbook doctor`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl

if TYPE_CHECKING:
    from deedbook.contract.features import Check
    from deedbook.workspace.declarations import Workspace


class Audit:
    """Verifies the records of a workspace."""

    @featureimpl
    def examine(self, workspace: "Workspace") -> "Iterator[Check]":
        """Return the checks of charters and ledgers."""
        from .doctor import check_records

        return check_records(workspace)
