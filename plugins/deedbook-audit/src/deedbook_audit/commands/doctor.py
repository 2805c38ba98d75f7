"""The check of records for `deedbook doctor`: the findings of `deedbook verify`, with remedies."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deedbook.contract.features import Check
    from deedbook.format.heads import Gap
    from deedbook.workspace.declarations import Workspace
    from deedbook_audit.report import Report


def check_records(workspace: "Workspace") -> "Iterator[Check]":
    """Verify the records of *workspace* like ``deedbook verify``; yield a fault if they are not sound.

    The remains of a process that died while writing are a note, not a fault. A missing charter is a fault, although
    `verify` calls the ledgers sound: decisions under it can no longer be checked. No plugin is imported.
    """
    from deedbook.contract.features import Check, first_faults
    from deedbook_audit.checking import check_ledgers
    from deedbook_audit.selection import select_all
    from deedbook_audit.trust import TrustInputs, check_trust
    from deedbook_audit.verification.crashes import find_remedy
    from deedbook_audit.verification.verdict import conclude

    selection = select_all(workspace)
    reports = check_ledgers(selection, plugins=False, jobs=1)
    remedies = {report.file: find_remedy(report) for report in reports if not report.sound}
    gaps = [_check_gap(gap) for gap in selection.lost]
    unchecked = [_check_unchecked(why) for why in selection.unchecked]
    kinds = [list(_check_unsound(reports, remedies)), [each for each in gaps if each.name == "ledger"]]
    kinds += [[each for each in (*gaps, *unchecked) if each.name == "charter"]]
    for alike in kinds:
        yield from first_faults(alike)
    if all(each.level == "note" for alike in kinds for each in alike):
        whole = [report for report in reports if not remedies.get(report.file)]
        trust = check_trust(selection, reports, TrustInputs())
        verdict = conclude(whole, trust.contradictions, trust.covered, selection.unchecked)
        if not verdict.sound:
            yield Check("ledger", "fault", verdict.summary, "deedbook verify")
    sound = sum(report.sound for report in reports)
    yield Check("ledger", "ok", f"{sound} of {len(reports)} ledgers are sound (unwitnessed)")


def _check_unsound(reports: "Sequence[Report]", remedies: dict[str, str | None]) -> "Iterator[Check]":
    """Yield a check for each ledger that is unreadable or not sound."""
    from deedbook.contract.features import Check

    for report in reports:
        if mend := remedies.get(report.file):
            yield Check("ledger", "note", f"{report.file} was cut short by a crash", mend)
        elif not report.sound:
            why = next((f": {each}" for each in report.bytes.failures if each.check == "readable"), "")
            yield Check("ledger", "fault", f"{report.file} is not sound{why}", f"deedbook verify {report.file}")


def _check_gap(gap: "Gap") -> "Check":
    from deedbook.contract.features import Check

    if gap.check.startswith("charter"):
        return Check("charter", "fault", str(gap), "deedbook verify")
    alone = gap.subject == f"session {gap.session}"
    return Check("ledger", "fault", str(gap), f"deedbook verify {gap.session}" if alone else "deedbook verify")


def _check_unchecked(why: str) -> "Check":
    from deedbook.contract.features import Check
    from deedbook_audit.verification.charters import NOT_STORED

    found = f"decisions cannot be checked: {why}"
    if not why.endswith(NOT_STORED):
        return Check("charter", "note", found, "deedbook verify")
    fix = "put it back from a backup, below charters/ of the state folder; a start makes only the newest anew"
    return Check("charter", "fault", found, fix)
