"""Prints the result of a verification: the verdict first, then the parts of each ledger."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from deedbook.format.heads import Gap
from deedbook.format.terminal import few, plain, pluralise

from .report import MOST_LISTED, UNHASHED, UNWITNESSED, Report
from .selection import Selection
from .verification.verdict import Verdict
from .whole import Verification


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _print_error(text: str) -> None:
    sys.stderr.write(f"error: {plain(text)}\n")


@attrs.frozen
class Output:
    """The output: *say* writes data, *complain* an error; *paint* returns a text in a colour, or unchanged."""

    say: Callable[[str], None] = _print
    complain: Callable[[str], None] = _print_error
    paint: Callable[[str, str], str] = lambda text, _: text


def build_document(found: Verification) -> dict[str, Any]:
    """Return the whole result as JSON (``output_verify_v1``)."""
    selection, trust, verdict = found.selection, found.trust, found.verdict
    counts = {"missing": len(selection.lost), "empty": len(selection.empty)}
    more = {name: count - MOST_LISTED for name, count in counts.items() if count > MOST_LISTED}
    return {
        "schema_version": "v1",
        "sound": verdict.sound,
        "verdict": verdict.as_json(),
        "reports": [report.as_json() for report in found.reports],
        "missing": [_gap_as_json(gap) for gap in selection.lost[:MOST_LISTED]],
        "empty": list(selection.empty[:MOST_LISTED]),
        **({"more": more} if more else {}),
        "log": trust.part,
        "notes": list(trust.notes),
    }


def print_verification(found: Verification, out: Output, *, alone: bool) -> None:
    """Print the result: all about a ledger that is named *alone*; else the common part and the unsound ledgers."""
    reports, selection, trust, verdict = found.reports, found.selection, found.trust, found.verdict
    if not reports and not selection.lost and not trust.contradictions:
        if not selection.empty:
            out.say("no ledgers yet")
        _print_missing(selection, out)
        return
    out.say(out.paint(plain(verdict.summary), "green" if verdict.sound else "red"))
    for note in (*trust.notes, *(f"decisions not checked: {why}" for why in verdict.unchecked[1:])):
        out.say(plain(note))
    if alone:
        _print_one(reports, verdict, out)
    else:
        _print_all(reports, verdict, out)
    _print_missing(selection, out)
    if not alone and verdict.sound:
        out.say(f"all {len(reports)} sound")


def _gap_as_json(gap: Gap) -> dict[str, str]:
    return {"session": gap.session, "check": gap.check, "expected": gap.expected, "found": gap.found}


def _print_one(reports: Sequence[Report], verdict: Verdict, out: Output) -> None:
    for report in reports:
        *lines, last = (line for line in report.lines() if line not in (UNWITNESSED, UNHASHED))
        for line in lines:
            out.say(line)
        out.say(f"{last}, taken by itself" if report.sound and not verdict.sound else last)


def _print_all(reports: Sequence[Report], verdict: Verdict, out: Output) -> None:
    """Print a line for each sound ledger, and everything about the others."""
    covered = verdict.checkpoint.after if verdict.checkpoint else {}
    for report in reports:
        if report.sound:
            after = covered.get(report.session_id or "")
            more = f", {after} after the checkpoint" if after else ""
            out.say(plain(f"sound  {report.file}: {report.events} events, {report.state}{more}"))
    broken = [report for report in reports if not report.sound]
    for report in broken:
        for line in (line for line in report.lines() if line != UNWITNESSED):
            out.say(line)
    judged = [report.decisions for report in reports if report.decisions]
    calls, same = sum(each.calls for each in judged), sum(each.same for each in judged)
    subjects = sum(each.subjects for each in judged)
    if calls or subjects:
        more = f", {sum(each.same_subjects for each in judged)} of {pluralise(subjects, 'subject')}" if subjects else ""
        out.say(f"decisions: {same} of {pluralise(calls, 'call')} judged again and the same{more}")
    if broken:
        out.complain(f"NOT SOUND: {len(broken)} of {len(reports)} ledger{'' if len(reports) == 1 else 's'}")


def _print_missing(selection: Selection, out: Output) -> None:
    """Print the gaps, and the empty sessions."""
    for text in few((f"{'missing' if gap.absent else 'differs'}  {gap}" for gap in selection.lost), MOST_LISTED):
        out.say(plain(text))
    empty = "empty  session {0}: nothing was ever recorded; `deedbook sessions close {0}` removes it"
    for text in few((empty.format(name) for name in selection.empty), MOST_LISTED):
        out.say(plain(text))
    if selection.lost:
        subjects = {gap.subject for gap in selection.lost}
        noun = "session" if all(each.startswith("session ") for each in subjects) else "thing"
        are = "is" if len(subjects) == 1 else "are"
        out.complain(f"{pluralise(len(subjects), noun)} {are} NOT what the workspace ledger recorded")
