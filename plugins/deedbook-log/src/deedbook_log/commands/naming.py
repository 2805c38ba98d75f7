"""The names of ledgers that corrections may write."""

from deedbook.cli.ledgers import WORKSPACE, own_ledger_path, own_session
from deedbook.workspace.declarations import Workspace


def writable_ledger(workspace: Workspace, name: str) -> str:
    """Return the ledger to write: the id of a session of this workspace, or ``workspace``.

    Raises `LedgerError` as `own_session` does.
    """
    return WORKSPACE if name == WORKSPACE and own_ledger_path(workspace).exists() else own_session(workspace, name)
