"""The check of ``deedbook doctor``: recorded revisions of routing policies follow from the tasks that they name."""

from collections.abc import Iterator
from pathlib import Path

from deedbook.contract import Event
from deedbook.contract.features import Check, first_faults
from deedbook.format.errors import DeedbookError
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import read

from .ledger_files import read_records
from .revision import check_revision
from .workspace_events import MARK, ROUTING_REVISED

NAME = "routing revisions"
_FIX = "deedbook swe routing report"


def check_revisions(state: Path) -> Iterator[Check]:
    """Yield the check of each recorded revision below a *state* folder; nothing without a revision."""
    try:
        revisions = list(_read_revisions(state))
        records = read_records(state) if revisions else []
    except (DeedbookError, OSError) as problem:
        yield Check(NAME, "fault", f"cannot be checked: {problem}", "deedbook verify")
        return
    faults = [
        Check(NAME, "fault", f"event {event.seq} of the workspace ledger: {why}", _FIX)
        for event in revisions
        for why in check_revision(event.payload, records)
    ]
    yield from first_faults(faults)
    if revisions and not faults:
        yield Check(NAME, "ok", f"{len(revisions)} follow from the tasks that they name")


def _read_revisions(state: Path) -> Iterator[Event]:
    place = state / "workspace" / LEDGER_FILE
    if place.exists() and MARK in place.read_bytes():
        yield from (event for event in read(place) if event.type == ROUTING_REVISED)
