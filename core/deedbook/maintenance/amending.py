"""Correcting what a ledger says: by a further event, which names the one that it corrects."""

from collections.abc import Sequence
from typing import Any, Final

import attrs

from deedbook.contract import Event, Object
from deedbook.format import events
from deedbook.format.amendments import TYPE, Amendments, AmendmentsFold, Unfit, at, patched
from deedbook.format.canonical import decode, encode_payload
from deedbook.format.errors import LedgerError, fault
from deedbook.format.families import CATALOGUE
from deedbook.format.folds import fold
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import read
from deedbook.format.schema import Schemas
from deedbook.format.sealed import digests_in
from deedbook.workspace.site import Site

from .opening import Opened, opened

REFUSED: Final = ("ledger.", "payload.")
"""Families of which no event is corrected: they say what was done with the ledger itself."""


def amend(site: Site, schemas: Schemas, name: str, seq: int, patch: Sequence[Object], *, reason: str, by: str) -> int:
    """Say event *seq* of the ledger *name* otherwise; return the seq of the amendment.

    *patch* is what ``event.amended`` has. Raises `LedgerError`: ``AMEND_REFUSED`` where it does not fit the event, or
    makes of it what its type does not allow, and as `opened` does.
    """
    sealing = attrs.evolve(site, seal=(*site.seal, f"{TYPE}/patch/*/value"))
    with opened(site, name, by, site.sealer()) as ledger:
        line = ledger.line(seq)
        told = fold(AmendmentsFold(), read(ledger.folder))
        hidden = _check(site, schemas, told, line.event, patch)
        if not hidden:
            return _append(ledger, line, patch, reason)
    with opened(site, name, by, sealing.sealer()) as ledger:
        return _append(ledger, ledger.line(seq), patch, reason)


def _append(ledger: Opened, line: events.Line, patch: Sequence[Object], reason: str) -> int:
    said: dict[str, Any] = {"seq": line.seq, "hash": line.envelope_hash, "patch": list(patch)}
    return ledger.say({TYPE: [said]}, reason)


def _check(site: Site, schemas: Schemas, told: Amendments, event: Event, patch: Sequence[Object]) -> bool:
    """Refuse what does not fit; say whether anything of it stands where values are sealed."""
    place = f"{LEDGER_FILE}#{event.seq}"
    if event.type.startswith(REFUSED):
        raise _refused(f"{event.type} says what was done with the ledger, and is not corrected", place)
    if events.EXCISED_KEY in event.payload:
        raise _refused("its payload was taken out of the ledger; there is nothing to correct", place)
    if not patch:
        raise _refused("there is nothing to say otherwise; give --set or --remove", place)
    before = told.said(event)
    try:
        after = patched(before, patch)
        raw = encode_payload(after)
        hidden = any(_is_hidden(before, event.payload, change["at"]) for change in patch)
    except Unfit as problem:
        raise _refused(str(problem), place) from None
    kind = CATALOGUE.get(event.type)
    faults = schemas.validator(kind).violations(after) if kind else ()
    if faults:
        raise _refused(f"it would be no {event.type} any more: {'; '.join(map(str, faults[:3]))}", place)
    sealed, blobs = site.sealer()(event.type, raw)
    return hidden or (bool(blobs) and any(_differs(after, decode(sealed), change["at"]) for change in patch))


def _is_hidden(before: Object, recorded: Object, pointer: str) -> bool:
    """Say whether what stands at *pointer* has something sealed in it."""
    for payload in (before, recorded):
        try:
            if any(digests_in(at(payload, pointer))):
                return True
        except Unfit:
            continue
    return False


def _differs(after: Object, sealed: Object, pointer: str) -> bool:
    """Say whether what is said at *pointer* would not stand in the ledger as it is."""
    try:
        return bool(at(after, pointer) != at(sealed, pointer))
    except Unfit:
        return False


def _refused(why: str, place: str) -> LedgerError:
    return LedgerError(fault("AMEND_REFUSED", why, place=place))
