"""What `deedbook doctor` is told of the records of a workspace."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deedbook.cli.health import Check
    from deedbook.workspace.declarations import Workspace


def check_records(workspace: "Workspace") -> "Iterator[Check]":
    """Yield whether charters are recorded, and which ledgers are sound."""
    from deedbook.cli.health import Check, first_faults
    from deedbook_audit.verification.charters import check_charters

    gaps = check_charters(workspace.state, (), every=True).gaps
    yield from (Check("charter", "fault", str(gap), "deedbook verify") for gap in gaps)
    places = sorted(workspace.state.glob("*/**/.events.jsonl"))
    unsound = list(_unsound(places))
    yield from first_faults(unsound)
    yield Check("ledger", "ok", f"{len(places) - len(unsound)} of {len(places)} ledgers are sound (unwitnessed)")


def _unsound(places: list[Path]) -> "Iterator[Check]":
    """Yield a check for each ledger that cannot be read, or is not sound."""
    from deedbook.cli.health import Check
    from deedbook.format.errors import DeedbookError, describe
    from deedbook.format.schema import Schemas, data_folder
    from deedbook_audit.verification.crashes import remedy
    from deedbook_audit.verify import verify_file

    schemas = Schemas.load(data_folder("schemas"))
    for place in places:
        try:
            report = verify_file(place, schemas=schemas)
        except (DeedbookError, OSError) as problem:
            yield Check("ledger", "fault", describe(problem), f"look at {place}; a ledger is a regular file")
        else:
            if mend := remedy(report):
                yield Check("ledger", "note", f"{report.file} was cut short by a crash", mend)
            elif not report.sound:
                yield Check("ledger", "fault", f"{report.file} is not sound", f"deedbook verify {report.file}")
