"""What mends a ledger in which nothing is wrong but what a process left that died while it wrote."""

from pathlib import Path

from deedbook.format.report import Report


def remedy(report: Report) -> str | None:
    """Return what a person does about such a ledger, told from the *report* on it; ``None`` for any other ledger.

    That is a torn end, or a file in which nothing was ever written. A workspace ledger is mended by its next writer.
    """
    found = {each.check for each in (*report.bytes.failures, *report.structure.failures)}
    if report.sound or found - {"empty"}:
        return None
    place = Path(report.file).absolute().parent
    if place.parent.name == "sessions":
        return f"deedbook sessions close {place.name}"
    emptied = found and any(place.parent.glob("sessions/*"))  # no session begins before its first line is there
    return "nothing; the next process that writes it does" if place.name == "workspace" and not emptied else None
