"""``deedbook verify``: check ledgers with a reader that knows the format and not the writer."""

from typing import TYPE_CHECKING

import click

from .common import Asked, json_option, shown
from .output import as_json, complain, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deedbook.report import Report

    from .heads import Gap

UNSOUND = 4


@click.command("verify")
@click.argument("ledger", required=False)
@json_option
@click.pass_obj
def command(asked: Asked, ledger: str | None) -> int:
    """Check LEDGER (a session's id, or a file), or every ledger of the workspace: bytes, then structure.

    Of all ledgers it is also checked that nothing of what the workspace ledger knows of them is missing.
    """
    from deedbook.schema import Schemas, data_folder
    from deedbook.verify import verify_file

    from .ledgers import session_file

    places, lost = ([session_file(asked.workspace, ledger)], []) if ledger else _all(asked.workspace)
    schemas = Schemas.load(data_folder("schemas"))
    reports = [verify_file(shown(place), schemas=schemas) for place in places]
    sound = not lost and all(report.sound for report in reports)
    if asked.json:
        told = {"reports": [report.as_json() for report in reports], "missing": [_as_json(gap) for gap in lost]}
        as_json({"schema_version": "v1", "sound": sound, **told})
    elif ledger:
        _tell(reports[0])
    else:
        _tell_all(reports, lost)
    return 0 if sound else UNSOUND


def _all(workspace: str) -> "tuple[list[Path], list[Gap]]":
    """Return every ledger, and what is missing of those that the workspace ledger knows."""
    from deedbook.kernel import read_workspace

    from .heads import gaps, recorded
    from .ledgers import own, session_files

    source = read_workspace(workspace)
    heads = recorded(source)  # before the files: they only grow
    files = [*([own(source)] if own(source).exists() else []), *session_files(source)]
    return files, list(gaps(source, heads))


def _as_json(gap: "Gap") -> dict[str, str]:
    return {"session": gap.session, "check": gap.check, "expected": gap.expected, "found": gap.found}


def _tell(report: "Report") -> None:
    for line in report.lines():
        say(line)


def _tell_all(reports: "Sequence[Report]", lost: "Sequence[Gap]") -> None:
    """Say what holds for all once, a line for each sound ledger, and everything about the others."""
    from deedbook.report import UNWITNESSED
    from deedbook.terminal import plain

    if not reports and not lost:
        say("no ledgers yet")
        return
    say(UNWITNESSED)
    for report in reports:
        if report.sound:
            say(plain(f"sound  {report.file}: {report.events} events, {report.state}"))
    broken = [report for report in reports if not report.sound]
    for report in broken:
        for line in (line for line in report.lines() if line != UNWITNESSED):
            say(line)
    for gap in lost:
        say(plain(f"missing  {gap}"))
    if broken:
        complain(f"{len(broken)} of {len(reports)} ledgers are NOT SOUND")
    if lost:
        complain(f"{len(lost)} sessions are NOT what the workspace ledger knows of them")
    if not broken and not lost:
        say(f"all {len(reports)} sound")
