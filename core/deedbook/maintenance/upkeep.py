"""Doing one thing to a workspace's ledgers without opening the workspace: its own ledger, a session to be ended."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from deedbook.format.errors import DomainError
from deedbook.format.files import Folder
from deedbook.ledger.journal import Torn
from deedbook.ledger.ledger import Ledger
from deedbook.workspace.own_ledger import open_own_ledger
from deedbook.workspace.site import Site

from .closing import Removed, close, remove, set_torn_aside, write_head
from .extending import tell_extended

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace


def close_session(workspace: "Workspace", identity: str, failed: Callable[[DomainError], None] | None = None) -> int:
    """End a session whose process died; return how many of its calls have an unknown outcome.

    Where the workspace has a log, a checkpoint covers the session then; *failed* is called with why there is none.

    Raises `LedgerError`: ``LEDGER_LOCKED`` while somebody writes it, ``SESSION_ENDED`` if it has ended,
    ``SESSION_NOT_FOUND``, and ``LEDGER_UNSOUND``, having written nothing, if lines are gone that the workspace ledger
    recorded.
    """
    with Folder.at(workspace.state) as state:
        unknown, ledger = close(state, identity, Site.of(workspace).sealer())
    _tell(workspace, ledger, "interrupted", failed)
    return unknown


def mend_session(
    workspace: "Workspace", identity: str, failed: Callable[[DomainError], None] | None = None
) -> int | None:
    """Set aside what follows the last line of a session that has ended; return how many bytes, ``None`` if none do.

    Otherwise as `close_session`.
    """
    with Folder.at(workspace.state) as state:
        found = set_torn_aside(state, identity, Site.of(workspace).sealer())
    if found is None:
        return None
    _tell(workspace, found[1], "ended", failed)
    return found[0]


def _tell(workspace: "Workspace", ledger: Ledger, state: str, failed: Callable[[DomainError], None] | None) -> None:
    """Record the new head of a session in the workspace's own ledger, and let a checkpoint cover it."""
    with open_own_ledger(workspace) as own:
        write_head(own, ledger.session_id, ledger.size, ledger.head, state)
    tell_extended(workspace, ledger.session_id, failed or _unheard)


def _unheard(_: DomainError) -> None:
    """Nobody is told."""


def discard_session(workspace: "Workspace", identity: str) -> Removed | None:
    """Remove the folder of a session that never began; ``None`` if it has begun, and then nothing is changed.

    What its first write left is kept beside the workspace's own ledger, which records it. Raises `LedgerError`:
    ``LEDGER_LOCKED`` while somebody begins it, ``LEDGER_UNSOUND`` if the workspace ledger recorded events of it or more
    than a ledger without a whole line is in the folder, ``SESSION_NOT_FOUND``.
    """

    def keep(session: str, torn: bytes) -> Torn:
        with open_own_ledger(workspace) as own:
            return own.keep(session, torn)

    with Folder.at(workspace.state) as state:
        return remove(state, identity, keep)
