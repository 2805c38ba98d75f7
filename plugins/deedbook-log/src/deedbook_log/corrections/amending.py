"""Amend a recorded event by a further event that names it."""

from collections.abc import Sequence
from typing import Any, Final

import attrs

from deedbook.contract import Event, Object
from deedbook.format import events
from deedbook.format.canonical import decode, encode_payload
from deedbook.format.errors import LedgerError, fault
from deedbook.format.families import schema_of
from deedbook.format.folds import AMENDED, fold
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import read
from deedbook.format.schema import Schemas
from deedbook.format.sealed import digests_in
from deedbook.maintenance.opening import OpenLedger, open_ledger
from deedbook.workspace.site import Site
from deedbook_audit.amendments import Amendments, AmendmentsFold, InvalidPatch, apply_patch, value_at

REFUSED: Final = ("ledger.", "payload.")
"""Families of events that cannot be amended: they record changes of the ledger itself."""


def amend(site: Site, schemas: Schemas, name: str, seq: int, patch: Sequence[Object], *, reason: str, by: str) -> int:
    """Amend event *seq* of the ledger *name*; return the seq of the amendment.

    *patch* has the form of ``event.amended``. Raises `LedgerError`: ``AMEND_REFUSED`` if it does not fit the event, or
    the result violates the event's type, and as `open_ledger` does.
    """
    sealing = attrs.evolve(site, seal=(*site.seal, f"{AMENDED}/patch/*/value"))
    with open_ledger(site, name, by, site.sealer()) as ledger:
        line = ledger.line(seq)
        told = fold(AmendmentsFold(), read(ledger.folder))
        hidden = _check(site, schemas, told, line.event, patch)
        if not hidden:
            return _append(ledger, line, patch, reason)
    with open_ledger(site, name, by, sealing.sealer()) as ledger:
        return _append(ledger, ledger.line(seq), patch, reason)


def _append(ledger: OpenLedger, line: events.Line, patch: Sequence[Object], reason: str) -> int:
    said: dict[str, Any] = {"seq": line.seq, "hash": line.envelope_hash, "patch": list(patch)}
    return ledger.append_events({AMENDED: [said]}, reason)


def _check(site: Site, schemas: Schemas, told: Amendments, event: Event, patch: Sequence[Object]) -> bool:
    """Refuse a patch that does not fit; return whether any changed value is sealed."""
    place = f"{LEDGER_FILE}#{event.seq}"
    if event.type.startswith(REFUSED):
        raise _refusal(f"{event.type} records a change of the ledger, and cannot be amended", place)
    if events.EXCISED_KEY in event.payload:
        raise _refusal("its payload was excised; there is nothing to amend", place)
    if not patch:
        raise _refusal("the patch is empty; give --set or --remove", place)
    before = told.amended_payload(event)
    try:
        after = apply_patch(before, patch)
        raw = encode_payload(after)
        hidden = any(_is_hidden(before, event.payload, change["at"]) for change in patch)
    except InvalidPatch as problem:
        raise _refusal(str(problem), place) from None
    kind = schema_of(event.type, after)
    faults = schemas.validator(kind).violations(after) if kind else ()
    if faults:
        raise _refusal(f"the result would be no valid {event.type}: {'; '.join(map(str, faults[:3]))}", place)
    sealed, blobs = site.sealer()(event.type, raw)
    return hidden or (bool(blobs) and any(_differs(after, decode(sealed), change["at"]) for change in patch))


def _is_hidden(before: Object, recorded: Object, pointer: str) -> bool:
    """Return whether the value at *pointer* contains something sealed."""
    for payload in (before, recorded):
        try:
            if any(digests_in(value_at(payload, pointer))):
                return True
        except InvalidPatch:
            continue
    return False


def _differs(after: Object, sealed: Object, pointer: str) -> bool:
    """Return whether the value at *pointer* would differ in the ledger, because it is sealed."""
    try:
        return bool(value_at(after, pointer) != value_at(sealed, pointer))
    except InvalidPatch:
        return False


def _refusal(why: str, place: str) -> LedgerError:
    return LedgerError(fault("AMEND_REFUSED", why, place=place))
