"""A checkpoint over what was said about a finished ledger, where the workspace has a log."""

from collections.abc import Callable

from deedbook.charter.settings import Settings
from deedbook.format.errors import DomainError
from deedbook.format.files import Folder
from deedbook.log.checkpoints.service import Checkpoints
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.site import Site

from .opening import OWN, own


def cover(workspace: Workspace, name: str, failed: Callable[[DomainError], None]) -> None:
    """Let a checkpoint cover the ledger *name*; a failure is said to *failed*, and what was done is done all the same.

    The workspace's own ledger is covered by the next checkpoint, whatever it is written for.
    """
    if name == OWN:
        return
    with own(Site.of(workspace)) as ledger, Folder.at(workspace.state) as state:
        checkpoints = Checkpoints(state, ledger, Settings.read(workspace.checkpoints, workspace.root))
        checkpoints.failed = failed
        checkpoints.cover([name])
        checkpoints.close()
