"""Open a finished ledger to append events about it: a session's under its lock, or the workspace's."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from deedbook.contract import Json
from deedbook.format.canonical import encode_payload
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import Entry, Line, label, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.sealed import Sealer
from deedbook.ledger.chain import Chain
from deedbook.ledger.ledger import Ledger, WorkspaceLedger
from deedbook.ledger.recovery import refuse_cut
from deedbook.workspace.own_ledger import open_site_ledger
from deedbook.workspace.site import Site

from .closing import folder_of, write_head

OWN: Final = "workspace"
"""The name of the workspace's own ledger."""


@attrs.frozen(eq=False)
class OpenLedger:
    """A ledger that is open for events about itself, with its *folder*; *by* is the acting person."""

    name: str
    folder: Folder
    ledger: Chain
    by: str

    def append_events(self, events: Mapping[str, list[dict[str, Json]]], reason: str) -> int:
        """Write events of these types with these payloads, durably, under the root; return the seq of the last."""
        says = {"reason": reason, "by": self.by}
        entries = [
            Entry(label(kind, "user", self.by), self.ledger.span(), self.ledger.root, encode_payload({**each, **says}))
            for kind, payloads in events.items()
            for each in payloads
        ]
        return self.ledger.append(entries, durable=True)

    def line(self, seq: int) -> Line:
        """Return the line with that *seq*; raises `LedgerError` (``USAGE``)."""
        place = f"{self.folder.path}/{LEDGER_FILE}"
        with self.folder.open(LEDGER_FILE) as file:
            for number, raw in enumerate(file):
                if number == seq and raw.endswith(b"\n"):
                    return split_line(raw, place=place)
        last = self.ledger.size - 1
        raise LedgerError(fault("USAGE", f"there is no event {seq}; the last is {last}", place=place))


@contextmanager
def open_ledger(site: Site, name: str, by: str, sealer: Sealer | None = None) -> Iterator[OpenLedger]:
    """Open the ledger *name*: the id of a session without a writer, or `OWN`; its head is recorded at the end.

    Without *sealer* nothing is sealed, but the values of secrets are masked. Raises `LedgerError`: ``LEDGER_LOCKED``
    while a session is open, ``SESSION_NOT_FOUND``, ``LEDGER_UNSOUND`` if recorded lines are missing.
    """
    sealer = sealer or _plain(site)
    with Folder.at(site.state) as state:
        if name == OWN:
            with open_workspace_ledger(site, sealer) as shared, state.sub(OWN) as folder:
                yield OpenLedger(name, folder, shared, by)
            return
        refuse_cut(Path(state.path), name)
        ledger = Ledger.reopen(folder_of(state, name), sealer=sealer)
        before = ledger.size
        try:
            with folder_of(state, name) as folder:
                yield OpenLedger(name, folder, ledger, by)
        finally:
            ledger.close()
        if ledger.size > before:
            with open_workspace_ledger(site) as shared:
                write_head(shared, name, ledger.size, ledger.head, "ended" if ledger.ended else "interrupted")


@contextmanager
def open_workspace_ledger(site: Site, sealer: Sealer | None = None) -> Iterator[WorkspaceLedger]:
    """Open the workspace's own ledger; without *sealer* nothing is sealed by rules. Raises `DeedbookError`."""
    with open_site_ledger(site, sealer or _plain(site)) as ledger:
        yield ledger


def _plain(site: Site) -> Sealer:
    return Sealer(None, {name: value for name, value in site.secret_values().items() if value})
