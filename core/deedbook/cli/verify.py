"""``deedbook verify``: check ledgers with a reader that knows the format and not the writer."""

from typing import TYPE_CHECKING

import click

from .common import Asked, json_option, shown
from .output import as_json, complain, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deedbook.report import Report

UNSOUND = 4


@click.command("verify")
@click.argument("ledger", required=False)
@json_option
@click.pass_obj
def command(asked: Asked, ledger: str | None) -> int:
    """Check LEDGER (a session's id, or a file), or every ledger of the workspace: bytes, then structure."""
    from deedbook.schema import Schemas, data_folder
    from deedbook.verify import verify_file

    from .ledgers import session_file

    places = [session_file(asked.workspace, ledger)] if ledger else _all(asked.workspace)
    schemas = Schemas.load(data_folder("schemas"))
    reports = [verify_file(shown(place), schemas=schemas) for place in places]
    sound = all(report.sound for report in reports)
    if asked.json:
        as_json({"schema_version": "v1", "sound": sound, "reports": [report.as_json() for report in reports]})
    elif ledger:
        _tell(reports[0])
    else:
        _tell_all(reports)
    return 0 if sound else UNSOUND


def _all(workspace: str) -> "list[Path]":
    from deedbook.kernel import read_workspace

    from .ledgers import own, session_files

    source = read_workspace(workspace)
    return [*([own(source)] if own(source).exists() else []), *session_files(source)]


def _tell(report: "Report") -> None:
    for line in report.lines():
        say(line)


def _tell_all(reports: "Sequence[Report]") -> None:
    """Say what holds for all once, a line for each sound ledger, and everything about the others."""
    from deedbook.report import UNWITNESSED
    from deedbook.terminal import plain

    if not reports:
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
    if broken:
        complain(f"{len(broken)} of {len(reports)} ledgers are NOT SOUND")
    else:
        say(f"all {len(reports)} sound")
