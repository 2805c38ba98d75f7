"""What `deedbook doctor` says of the ledgers and charters of a workspace: the verifier's findings, with what to do."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import attrs

from deedbook.audit.verification.charters import NOT_KEPT
from deedbook.audit.verification.crashes import remedy
from deedbook.audit.verification.verdict import conclude

from .checking import Checker
from .chosen import every
from .vouching import Believed, vouch

if TYPE_CHECKING:
    from deedbook.format.heads import Gap
    from deedbook.format.report import Report

_VERIFY: Final = "deedbook verify"


@attrs.frozen
class Finding:
    """One thing that is amiss, or worth knowing: what it is about, how grave it is, and how to mend it."""

    subject: Literal["ledger", "charter"]
    level: Literal["note", "fault"]
    found: str
    fix: str


@attrs.frozen
class Soundness:
    """What was found, and how many of the *ledgers* of the workspace are *sound* by themselves."""

    findings: Sequence[Finding]
    ledgers: int
    sound: int


def examine_ledgers(root: Path) -> Soundness:
    """Verify the workspace at *root* as ``deedbook verify`` does; where that is not sound, there is a fault.

    What a process left that died while it wrote is no fault but a note. A charter that is named and not kept is a
    fault, although `verify` calls the ledgers sound: nobody can check the decisions under it any more. No plugin is
    imported. Raises `DeedbookError` where the state cannot be read.
    """
    chosen = every(str(root))
    with Checker(chosen.source, plugins=False) as checker:
        reports = [checker(place) for place in chosen.files]
    remedies = {report.file: remedy(report) for report in reports if not report.sound}
    findings = [*_unsound(reports, remedies), *map(_missing, chosen.lost), *map(_unchecked, chosen.unchecked)]
    if all(each.level == "note" for each in findings):
        whole = [report for report in reports if not remedies.get(report.file)]
        vouched = vouch(chosen, reports, Believed())
        verdict = conclude(whole, vouched.contradictions, vouched.covered, chosen.unchecked)
        if not verdict.sound:
            findings.append(Finding("ledger", "fault", verdict.said, _VERIFY))
    return Soundness(findings, len(reports), sum(report.sound for report in reports))


def _unsound(reports: "Sequence[Report]", remedies: dict[str, str | None]) -> Iterator[Finding]:
    for report in reports:
        if mend := remedies.get(report.file):
            yield Finding("ledger", "note", f"{report.file} was cut short by a crash", mend)
        elif not report.sound:
            why = next((f": {each}" for each in report.bytes.failures if each.check == "readable"), "")
            yield Finding("ledger", "fault", f"{report.file} is not sound{why}", f"{_VERIFY} {report.file}")


def _missing(gap: "Gap") -> Finding:
    if gap.check.startswith("charter"):
        return Finding("charter", "fault", str(gap), _VERIFY)
    alone = gap.subject == f"session {gap.session}"
    return Finding("ledger", "fault", str(gap), f"{_VERIFY} {gap.session}" if alone else _VERIFY)


def _unchecked(why: str) -> Finding:
    found = f"decisions cannot be checked: {why}"
    if not why.endswith(NOT_KEPT):
        return Finding("charter", "note", found, _VERIFY)
    fix = "put it back from a backup, below charters/ of the state folder; a start makes only the newest anew"
    return Finding("charter", "fault", found, fix)
