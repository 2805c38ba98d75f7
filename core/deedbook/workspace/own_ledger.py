"""The workspace's own ledger, opened for writing without opening the workspace."""

from collections.abc import Iterator
from contextlib import contextmanager

from deedbook.format.files import Folder
from deedbook.format.release import VERSION
from deedbook.ledger.ledger import WorkspaceLedger

from .declarations import Workspace
from .site import Site


@contextmanager
def own_ledger(workspace: Workspace) -> Iterator[WorkspaceLedger]:
    """Open the workspace's own ledger for writing, and nothing else; raises `DeedbookError`."""
    site = Site.of(workspace)
    with Folder.at(workspace.state, create=True) as state:
        own = WorkspaceLedger.open(state, workspace=site.identity, kernel=VERSION, sealer=site.sealer())
        try:
            yield own
        finally:
            own.close()
