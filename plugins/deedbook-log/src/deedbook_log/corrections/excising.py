"""Remove the payload of an event from its line: the last resort for values that were never sealed and must not stay."""

from pathlib import Path
from typing import Any, Final

from deedbook.format import canonical
from deedbook.format.errors import BindingError, LedgerError, fault
from deedbook.format.events import EXCISED_KEY, UNEXCISABLE, Line
from deedbook.format.files import Folder
from deedbook.format.schema import data_folder
from deedbook.maintenance.finishing import finish, pending_cleanup
from deedbook.maintenance.opening import OWN, open_ledger
from deedbook.plugins.features import Features
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.plugins import discover
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.site import Site

TYPE: Final = "ledger.excised"


def preview(site: Site, name: str, seq: int, by: str) -> Line:
    """Return the line whose payload would be removed; raises `LedgerError` where that would be refused."""
    with open_ledger(site, name, by) as ledger:
        line = ledger.line(seq)
        _refuse(line, name, ended=ledger.ledger.ended)
    return line


def excise(site: Site, name: str, seq: int, *, reason: str, by: str) -> Line:
    """Remove the payload of event *seq* from the ledger *name*, after recording that; return the line as it was.

    Its sealed values are also deleted. An excision that was started before is finished. Raises `LedgerError`:
    ``EXCISE_REFUSED`` for a payload that the ledger depends on, and as `open_ledger` does.
    """
    with Folder.at(site.state) as state, pending_cleanup(state, name):
        finish(state, name)
        with open_ledger(site, name, by) as ledger:
            line = ledger.line(seq)
            _refuse(line, name, ended=ledger.ledger.ended)
            if EXCISED_KEY.encode() not in line.payload[:16]:
                told: dict[str, Any] = {"seq": seq, "payload_hash": line.payload_hash, "size": len(line.payload)}
                ledger.append_events({TYPE: [told]}, reason)
        finish(state, name)
    return line


def _refuse(line: Line, name: str, *, ended: bool) -> None:
    if line.event_type.startswith(UNEXCISABLE):
        why = f"{line.event_type} is needed by the ledger, its proofs or a person's consent; it stays"
        raise LedgerError(fault("EXCISE_REFUSED", why))
    if name != OWN and not ended:
        why = f"session {name} has not ended; end it first: deedbook sessions close {name}"
        raise LedgerError(fault("EXCISE_REFUSED", why))


# --- what features rendered from the ledger --------------------------------------------------------------------------


def refuse_missing(state: Path) -> None:
    """Raise `BindingError` if the state folder holds files of a feature that is not installed.

    That feature would have to remove its copies of an excised payload.
    """
    catalogue = discover()
    for name, known in canonical.decode((data_folder("known") / "features.json").read_bytes()).items():
        if (state / known["folder"]).exists() and catalogue.get(FEATURE, name) is None:
            why = f"the state folder has pages of {name}, which is not installed: pip install {known['distribution']}"
            raise BindingError(fault("PLUGIN_MISSING", why))


def renew_pages(workspace: Workspace, name: str) -> None:
    """Let features render again what they rendered from the ledger *name*; raises the first error."""
    Features.load().demand("pages_renewed", workspace=workspace, name=name)
