"""Maintain a workspace's ledgers without opening the workspace: end, mend or discard a session."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from deedbook.format.errors import DomainError
from deedbook.format.files import Folder
from deedbook.ledger.journal import TornTail
from deedbook.maintenance.closing import (
    ClosedSession,
    RemovedSession,
    close,
    remove,
    set_torn_aside,
    withdraw_requests,
    write_head,
)
from deedbook.maintenance.extending import notify_extended
from deedbook.workspace.own_ledger import open_own_ledger
from deedbook.workspace.site import Site

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace


def close_session(workspace: "Workspace", identity: str, failed: Callable[[DomainError], None] | None = None) -> int:
    """End a session whose process died; return the number of its calls with an unknown outcome.

    A run that could be resumed is given up, and its requests for an approval are withdrawn.
    If the workspace has a log, a checkpoint then covers the session; *failed* is called with the reason if not. Raises
    `LedgerError`: ``LEDGER_LOCKED`` while it has a writer, ``SESSION_ENDED`` if it has ended, ``SESSION_NOT_FOUND``,
    and ``LEDGER_UNSOUND``, having written nothing, if recorded lines are missing.
    """
    with Folder.at(workspace.state) as state:
        closed = close(state, identity, Site.of(workspace).sealer())
    _tell(workspace, closed, "interrupted", failed)
    return closed.unknown


def mend_session(
    workspace: "Workspace", identity: str, failed: Callable[[DomainError], None] | None = None
) -> int | None:
    """Set aside the bytes after the last line of an ended session; return their number, ``None`` if there are none.

    Otherwise like `close_session`.
    """
    with Folder.at(workspace.state) as state:
        found = set_torn_aside(state, identity, Site.of(workspace).sealer())
    if found is None:
        return None
    torn, ledger = found
    _tell(workspace, ClosedSession(0, ledger), "ended", failed)
    return torn


def _tell(
    workspace: "Workspace", closed: ClosedSession, state: str, failed: Callable[[DomainError], None] | None
) -> None:
    """Record the new head of a session in the workspace's own ledger, and let a checkpoint cover it.

    The requests that it has withdrawn are also withdrawn there.
    """
    ledger = closed.ledger
    with open_own_ledger(workspace) as own:
        withdraw_requests(own, closed)
        write_head(own, ledger.session_id, ledger.size, ledger.head, state)
    notify_extended(workspace, ledger.session_id, failed or _ignore)


def _ignore(_: DomainError) -> None:
    """Ignore the error."""


def discard_session(workspace: "Workspace", identity: str) -> RemovedSession | None:
    """Remove the folder of a session that never began; return ``None``, without a change, if it has begun.

    Its incomplete first write is kept beside the workspace's own ledger, which records it. Raises `LedgerError`:
    ``LEDGER_LOCKED`` while another process begins it, ``LEDGER_UNSOUND`` if the workspace ledger recorded events of it
    or the folder has more than a ledger without a whole line, ``SESSION_NOT_FOUND``.
    """

    def keep(session: str, torn: bytes) -> TornTail:
        with open_own_ledger(workspace) as own:
            return own.keep(session, torn)

    with Folder.at(workspace.state) as state:
        return remove(state, identity, keep)
