"""What a verification found, as it is said: the verdict first, then each ledger's parts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deedbook.cli.output import complain, paint, say

if TYPE_CHECKING:
    from deedbook.audit.verification.verdict import Verdict
    from deedbook.format.heads import Gap
    from deedbook.format.report import Report

    from .chosen import Chosen
    from .vouching import Vouched


def as_told(reports: "Sequence[Report]", chosen: "Chosen", vouched: "Vouched", verdict: "Verdict") -> dict[str, Any]:
    """Return everything as JSON."""
    from deedbook.format.report import MOST_LISTED

    counts = {"missing": len(chosen.lost), "empty": len(chosen.empty)}
    more = {name: count - MOST_LISTED for name, count in counts.items() if count > MOST_LISTED}
    return {
        "schema_version": "v1",
        "sound": verdict.sound,
        "verdict": verdict.as_json(),
        "reports": [report.as_json() for report in reports],
        "missing": [_gap(gap) for gap in chosen.lost[:MOST_LISTED]],
        "empty": list(chosen.empty[:MOST_LISTED]),
        **({"more": more} if more else {}),
        "log": vouched.part,
        "notes": list(vouched.notes),
    }


def tell(reports: "Sequence[Report]", chosen: "Chosen", vouched: "Vouched", verdict: "Verdict", *, alone: bool) -> None:
    """Say everything about a ledger that was named *alone*; else what holds for all, and more of what is not sound."""
    from deedbook.format.terminal import plain

    if not reports and not chosen.lost and not vouched.contradictions:
        if not chosen.empty:
            say("no ledgers yet")
        _tell_rest(chosen)
        return
    say(paint(plain(verdict.said), "green" if verdict.sound else "red"))
    for note in (*vouched.notes, *(f"decisions not checked: {why}" for why in verdict.unchecked[1:])):
        say(plain(note))
    if alone:
        _tell_one(reports, verdict)
    else:
        _tell_all(reports, verdict)
    _tell_rest(chosen)
    if not alone and verdict.sound:
        say(f"all {len(reports)} sound")


def _gap(gap: "Gap") -> dict[str, str]:
    return {"session": gap.session, "check": gap.check, "expected": gap.expected, "found": gap.found}


def _tell_one(reports: "Sequence[Report]", verdict: "Verdict") -> None:
    from deedbook.format.report import UNHASHED, UNWITNESSED

    for report in reports:
        *lines, last = (line for line in report.lines() if line not in (UNWITNESSED, UNHASHED))
        for line in lines:
            say(line)
        say(f"{last}, taken by itself" if report.sound and not verdict.sound else last)


def _tell_all(reports: "Sequence[Report]", verdict: "Verdict") -> None:
    """Say a line of each sound ledger, and everything about the others."""
    from deedbook.format.report import UNWITNESSED, counted
    from deedbook.format.terminal import plain

    covered = verdict.checkpoint.after if verdict.checkpoint else {}
    for report in reports:
        if report.sound:
            after = covered.get(report.session_id or "")
            more = f", {after} after the checkpoint" if after else ""
            say(plain(f"sound  {report.file}: {report.events} events, {report.state}{more}"))
    broken = [report for report in reports if not report.sound]
    for report in broken:
        for line in (line for line in report.lines() if line != UNWITNESSED):
            say(line)
    judged = [report.decisions for report in reports if report.decisions and report.decisions.calls]
    if judged:
        calls, same = sum(each.calls for each in judged), sum(each.same for each in judged)
        say(f"decisions: {same} of {counted(calls, 'call')} judged again and the same")
    if broken:
        complain(f"NOT SOUND: {len(broken)} of {len(reports)} ledger{'' if len(reports) == 1 else 's'}")


def _tell_rest(chosen: "Chosen") -> None:
    """Say what is lost, and which sessions never began."""
    from deedbook.format.report import MOST_LISTED, counted, few
    from deedbook.format.terminal import plain

    for text in few((f"{'missing' if gap.absent else 'differs'}  {gap}" for gap in chosen.lost), MOST_LISTED):
        say(plain(text))
    empty = "empty  session {0}: nothing was ever recorded; `deedbook sessions close {0}` removes it"
    for text in few((empty.format(name) for name in chosen.empty), MOST_LISTED):
        say(plain(text))
    if chosen.lost:
        subjects = {gap.subject for gap in chosen.lost}
        noun = "session" if all(each.startswith("session ") for each in subjects) else "thing"
        are = "is" if len(subjects) == 1 else "are"
        complain(f"{counted(len(subjects), noun)} {are} NOT what the workspace ledger recorded")
