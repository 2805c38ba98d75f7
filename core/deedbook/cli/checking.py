"""Checking ledgers one by one or several at once: bytes, structure, and decisions where their charter is at hand."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs

from .common import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deedbook.approvals.consents import Approvers
    from deedbook.rejudging.charters import Charters
    from deedbook.verification.report import Decisions, Report
    from deedbook.workspaces.declarations import Workspace

    from .chosen import Chosen


def check(chosen: "Chosen", *, plugins: bool, jobs: int) -> "list[Report]":
    """Check every ledger that was chosen."""
    with Checker(chosen.source, plugins=plugins) as checker:
        return [checker(place, jobs=jobs) for place in chosen.files]


class Checker:
    """Checks ledgers of one workspace, or of none; hold it as a context."""

    def __init__(self, source: "Workspace | None", *, plugins: bool) -> None:
        from deedbook.schema import Schemas, data_folder

        self._source, self._plugins = source, plugins
        self._schemas = Schemas.load(data_folder("schemas"))
        self._held = ExitStack()
        self._charters: Charters | None = None

    def __enter__(self) -> Self:
        from deedbook.errors import DeedbookError

        if self._source:
            from deedbook.rejudging.charters import charters_of
            from deedbook.workspaces.site import Site

            with suppress(DeedbookError, OSError):  # then none is at hand
                held = charters_of(Site.of(self._source), self._schemas, plugins=self._plugins)
                self._charters = self._held.enter_context(held)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def __call__(self, place: Path, *, jobs: int = 1, watch: "Callable[[int], None] | None" = None) -> "Report":
        """Check the ledger at *place*; *watch* is told how many bytes were read."""
        from deedbook.verify import verify_file

        approvers = _approvers(self._source) if self._source else None
        report = verify_file(shown(place), schemas=self._schemas, approvers=approvers)
        judged = report.format == "1.1" and report.state != "workspace"
        if not judged or report.bytes.failures or report.structure.failures:
            return report
        return attrs.evolve(report, decisions=self._decisions(place))

    def _decisions(self, place: Path) -> "Decisions":
        from deedbook.errors import LedgerError
        from deedbook.rejudging.charters import NO_CHARTER
        from deedbook.rejudging.recheck import recheck
        from deedbook.verification.report import Decisions

        try:
            return recheck(place, self._charters or (lambda _: NO_CHARTER))
        except LedgerError as problem:  # sound, and not what is judged: one of an older form
            return Decisions(unknown={str(problem): 1})


def _approvers(source: "Workspace") -> "Approvers":
    """Return how the approvers of a charter are found."""
    from deedbook.approvals.requests import approvers
    from deedbook.errors import DeedbookError
    from deedbook.files import Folder
    from deedbook.store import Store

    def find(digest: str) -> "Mapping[str, str] | None":
        try:
            with Folder.at(source.state) as folder:
                charter = Store(folder).find(digest)
        except (DeedbookError, OSError):
            return None
        return approvers(charter.document["principals"]) if charter else None

    return find
