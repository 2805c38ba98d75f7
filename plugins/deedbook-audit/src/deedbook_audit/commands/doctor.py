"""What `deedbook doctor` is told of the records of a workspace: what `deedbook verify` finds, with what to do."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deedbook.cli.health import Check
    from deedbook.format.heads import Gap
    from deedbook.format.report import Report
    from deedbook.workspace.declarations import Workspace


def check_records(workspace: "Workspace") -> "Iterator[Check]":
    """Verify the records of *workspace* as ``deedbook verify`` does; where that is not sound, there is a fault.

    What a process left that died while it wrote is no fault but a note. A charter that is named and not kept is a
    fault, although `verify` calls the ledgers sound: nobody can check the decisions under it any more. No plugin is
    imported.
    """
    from deedbook.cli.health import Check, first_faults
    from deedbook_audit.checking import check
    from deedbook_audit.selection import select_all
    from deedbook_audit.trust import TrustInputs, check_trust
    from deedbook_audit.verification.crashes import remedy
    from deedbook_audit.verification.verdict import conclude

    selection = select_all(workspace)
    reports = check(selection, plugins=False, jobs=1)
    remedies = {report.file: remedy(report) for report in reports if not report.sound}
    gaps = [_missing(gap) for gap in selection.lost]
    unchecked = [_unchecked(why) for why in selection.unchecked]
    kinds = [list(_unsound(reports, remedies)), [each for each in gaps if each.name == "ledger"]]
    kinds += [[each for each in (*gaps, *unchecked) if each.name == "charter"]]
    for alike in kinds:
        yield from first_faults(alike)
    if all(each.level == "note" for alike in kinds for each in alike):
        whole = [report for report in reports if not remedies.get(report.file)]
        trust = check_trust(selection, reports, TrustInputs())
        verdict = conclude(whole, trust.contradictions, trust.covered, selection.unchecked)
        if not verdict.sound:
            yield Check("ledger", "fault", verdict.said, "deedbook verify")
    sound = sum(report.sound for report in reports)
    yield Check("ledger", "ok", f"{sound} of {len(reports)} ledgers are sound (unwitnessed)")


def _unsound(reports: "Sequence[Report]", remedies: dict[str, str | None]) -> "Iterator[Check]":
    """Yield a check for each ledger that cannot be read, or is not sound."""
    from deedbook.cli.health import Check

    for report in reports:
        if mend := remedies.get(report.file):
            yield Check("ledger", "note", f"{report.file} was cut short by a crash", mend)
        elif not report.sound:
            why = next((f": {each}" for each in report.bytes.failures if each.check == "readable"), "")
            yield Check("ledger", "fault", f"{report.file} is not sound{why}", f"deedbook verify {report.file}")


def _missing(gap: "Gap") -> "Check":
    from deedbook.cli.health import Check

    if gap.check.startswith("charter"):
        return Check("charter", "fault", str(gap), "deedbook verify")
    alone = gap.subject == f"session {gap.session}"
    return Check("ledger", "fault", str(gap), f"deedbook verify {gap.session}" if alone else "deedbook verify")


def _unchecked(why: str) -> "Check":
    from deedbook.cli.health import Check
    from deedbook_audit.verification.charters import NOT_KEPT

    found = f"decisions cannot be checked: {why}"
    if not why.endswith(NOT_KEPT):
        return Check("charter", "note", found, "deedbook verify")
    fix = "put it back from a backup, below charters/ of the state folder; a start makes only the newest anew"
    return Check("charter", "fault", found, fix)
