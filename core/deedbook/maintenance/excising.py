"""Taking the payload of an event out of its line: the last resort for what was never sealed and must not stay."""

from typing import Any, Final

from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import EXCISED_KEY, UNEXCISABLE, Line
from deedbook.format.files import Folder
from deedbook.workspace.site import Site

from .finishing import finish, promised
from .opening import OWN, opened

TYPE: Final = "ledger.excised"


def looked_at(site: Site, name: str, seq: int, by: str) -> Line:
    """Return the line whose payload would be taken out; raises `LedgerError` where it would be refused."""
    with opened(site, name, by) as ledger:
        line = ledger.line(seq)
        _refuse(line, name, ended=ledger.ledger.ended)
    return line


def excise(site: Site, name: str, seq: int, *, reason: str, by: str) -> Line:
    """Take the payload of event *seq* out of the ledger *name*, after saying so; return the line as it was.

    Its sealed values are deleted, too. Where it was begun before, it is finished. Raises `LedgerError`:
    ``EXCISE_REFUSED`` for a payload that the ledger stands on, and as `opened` does.
    """
    with Folder.at(site.state) as state, promised(state, name):
        finish(state, name)
        with opened(site, name, by) as ledger:
            line = ledger.line(seq)
            _refuse(line, name, ended=ledger.ledger.ended)
            if EXCISED_KEY.encode() not in line.payload[:16]:
                told: dict[str, Any] = {"seq": seq, "payload_hash": line.payload_hash, "size": len(line.payload)}
                ledger.say({TYPE: [told]}, reason)
        finish(state, name)
    return line


def _refuse(line: Line, name: str, *, ended: bool) -> None:
    if line.event_type.startswith(UNEXCISABLE):
        why = f"{line.event_type} holds what the ledger, its proofs or a person's consent stand on; it stays"
        raise LedgerError(fault("EXCISE_REFUSED", why))
    if name != OWN and not ended:
        why = f"session {name} has not ended; end it first: deedbook sessions close {name}"
        raise LedgerError(fault("EXCISE_REFUSED", why))
