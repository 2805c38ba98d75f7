"""Open the workspace's own ledger for writing, without opening the workspace."""

from collections.abc import Iterator
from contextlib import contextmanager

from deedbook.format.release import VERSION
from deedbook.format.sealed import Sealer
from deedbook.ledger.ledger import WorkspaceLedger

from .declarations import Workspace
from .site import Site
from .trust import check_own, open_state


@contextmanager
def open_own_ledger(workspace: Workspace) -> Iterator[WorkspaceLedger]:
    """Open the workspace's own ledger for writing, and nothing else; raises `DeedbookError`."""
    site = Site.of(workspace)
    with open_site_ledger(site, site.sealer()) as ledger:
        yield ledger


@contextmanager
def open_site_ledger(site: Site, sealer: Sealer) -> Iterator[WorkspaceLedger]:
    """Open the own ledger of the workspace at *site*; *sealer* seals its values. Raises `DeedbookError`."""
    check_own(site.root)
    with open_state(site.root, site.state, create=True) as state:
        ledger = WorkspaceLedger.open(state, workspace=site.identity, kernel=VERSION, sealer=sealer)
        try:
            yield ledger
        finally:
            ledger.close()
