"""The feature `checkpoints`: keeps the log of a workspace up to date while its ledgers are written."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from deedbook.charter.settings import CheckpointSettings
from deedbook.contract.features import featureimpl
from deedbook.format.errors import DomainError
from deedbook.format.files import Folder
from deedbook.maintenance.log_presence import FEATURE, has_log
from deedbook.maintenance.opening import OWN, open_workspace_ledger
from deedbook.workspace.site import Site

from .checkpoints.keeper import CheckpointKeeper

if TYPE_CHECKING:
    from deedbook.call.handlers import Ticket
    from deedbook.contract.features import Check
    from deedbook.kernel import Kernel
    from deedbook.ledger.ledger import Ledger
    from deedbook.sessions.session import Session
    from deedbook.workspace.declarations import Workspace


class Checkpoints:
    """Writes checkpoints before effects, at ends of sessions and periodically, once the workspace has a log."""

    def __init__(self) -> None:
        self._keeper: CheckpointKeeper | None = None
        self._making = Lock()

    @featureimpl
    def before_effects(
        self, kernel: "Kernel", ledger: "Ledger", undo: ExitStack
    ) -> "Mapping[str, Callable[[Ticket], None]] | None":
        """Follow the session, and let its effects begin only after a checkpoint covers their intents."""
        keeper = self._get_keeper(kernel)
        keeper.begin(ledger)
        undo.callback(keeper.forget, ledger.session_id)

        def cover(ticket: "Ticket") -> None:
            keeper.cover(ticket.session)

        return dict.fromkeys(keeper.settings.before, cover)

    @featureimpl
    def session_ended(self, kernel: "Kernel", session: "Session") -> None:
        """Cover the ended session."""
        self._get_keeper(kernel).end(session.ledger)

    @featureimpl
    def sessions_recovered(self, kernel: "Kernel") -> None:
        """Cover the sessions that were ended for dead processes."""
        self._get_keeper(kernel).cover_others(None)

    @featureimpl
    def kernel_closed(self) -> None:
        """Stop writing checkpoints."""
        if self._keeper is not None:
            self._keeper.close()

    @featureimpl
    def ledger_extended(self, workspace: "Workspace", name: str, report: Callable[[DomainError], None]) -> None:
        """Cover a finished session's ledger; the next checkpoint covers the workspace's own."""
        if name == OWN:
            return
        settings = CheckpointSettings.read(workspace.checkpoints, workspace.root)
        with open_workspace_ledger(Site.of(workspace)) as ledger, Folder.at(workspace.state) as state:
            if has_log(state, ledger, settings):
                keeper = CheckpointKeeper(state, ledger, settings, report)
                keeper.cover_others([name])
                keeper.close()

    @featureimpl
    def examine(self, workspace: "Workspace") -> "Iterator[Check]":
        """Check whether there is a log, and whether this user can sign its next checkpoint."""
        from .doctor import check_log

        return check_log(workspace)

    def _get_keeper(self, kernel: "Kernel") -> "CheckpointKeeper":
        with self._making:
            if self._keeper is None:
                settings = CheckpointSettings.read(kernel.bindings.charter.document.get(FEATURE, {}), kernel.site.root)
                note = partial(kernel.notices.add, FEATURE)
                self._keeper = CheckpointKeeper(kernel.state, kernel.ledger, settings, note)
            return self._keeper
