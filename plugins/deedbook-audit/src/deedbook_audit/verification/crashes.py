"""The remedy for a ledger whose only fault is that its writer died while writing."""

from pathlib import Path

from deedbook_audit.report import Report


def find_remedy(report: Report) -> str | None:
    """Return the remedy for a crashed ledger, from the *report* on it; ``None`` for any other ledger.

    That is a torn end, or an empty file. The next writer repairs a workspace ledger.
    """
    found = {each.check for each in (*report.bytes.failures, *report.structure.failures)}
    if report.sound or found - {"empty"}:
        return None
    place = Path(report.file).absolute().parent
    if place.parent.name == "sessions":
        return f"deedbook sessions close {place.name}"
    emptied = found and any(
        place.parent.glob("sessions/*")
    )  # no session begins before the workspace ledger has its first line
    return "nothing; the next process that writes it does" if place.name == "workspace" and not emptied else None
