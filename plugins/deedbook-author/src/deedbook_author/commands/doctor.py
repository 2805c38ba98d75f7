"""Check all that Deedbook stands on, and how to mend it."""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs
import click

from deedbook.cli.common import GlobalOptions, json_option
from deedbook.cli.output import as_json, data_command, paint, say

from .parameters import FilePath

if TYPE_CHECKING:
    from deedbook.contract.features import Check
    from deedbook_author.guarantees.runner import Examination

SECTION: Final = "Begin"
_COLOURS: Final = MappingProxyType({"ok": "green", "note": "yellow", "fault": "red"})
_STATUS_COLOURS: Final = MappingProxyType({"holds": "green", "broken": "red", "error": "red"})


@data_command
@click.command("doctor")
@click.option("--guarantees", is_flag=True, help="Instead, attack a copy of the workspace: which promises hold here?")
@click.option("--junit", metavar="FILE", type=FilePath(dir_okay=False), help="With --guarantees: write JUnit XML, too.")
@json_option
@click.pass_obj
def command(options: GlobalOptions, junit: Path | None, *, guarantees: bool) -> int:
    """Check Python, plugins, the workspace, its lock and ledgers, disk, file locks, clock and the system's kernel.

    Loads and constructs every plugin that the workspace uses. Exit status 1 if there is a fault.

    With --guarantees, some forty attacks are made against a copy of the workspace, without effects and without network.
    Exit status 1 if a promise does not hold.
    """
    if junit and not guarantees:
        raise click.UsageError("--junit needs --guarantees")
    if junit and not junit.parent.is_dir():
        raise click.BadParameter(f"there is no folder {junit.parent}", param_hint="--junit")
    return _try_guarantees(options, junit) if guarantees else _examine(options)


def _examine(options: GlobalOptions) -> int:
    from deedbook.format.errors import SourceError
    from deedbook.plugins.plugins import discover
    from deedbook.workspace.sources import find_workspace
    from deedbook.workspace.workspace import load_profile
    from deedbook_author.health import examine

    try:
        root = find_workspace(Path(options.workspace))
    except SourceError:
        root = None
    checks = list(examine(root, discover(), lambda: load_profile(root or Path(), None)))
    well = all(check.level != "fault" for check in checks)
    if options.json:
        as_json({"schema_version": "v1", "ok": well, "checks": [attrs.asdict(check) for check in checks]})
    else:
        _tell(checks)
    return 0 if well else 1


def _tell(checks: "Sequence[Check]") -> None:
    from deedbook.format.terminal import plain

    for check in checks:
        level = f"{check.level.upper() if check.level == 'fault' else check.level:5}"
        say(f"{paint(level, _COLOURS[check.level])}  {check.name:9}  {plain(check.found)}")
        if check.fix:
            say(f"{'':18}mend: {plain(check.fix)}")
    faults = sum(check.level == "fault" for check in checks)
    say("all is well" if not faults else f"{faults} {'fault' if faults == 1 else 'faults'}")


# --- guarantees -------------------------------------------------------------------------------------------------------


def _try_guarantees(options: GlobalOptions, junit: Path | None) -> int:
    from deedbook.format.files import Folder
    from deedbook.workspace.sources import find_workspace
    from deedbook_author.guarantees.isolation import examine_apart
    from deedbook_author.guarantees.report import format_junit

    if junit:
        junit.unlink(missing_ok=True)  # no old report stays, if the examination cannot be made
    examination = examine_apart(find_workspace(Path(options.workspace)))
    if junit:
        with Folder.at(junit.parent) as folder:
            folder.replace(junit.name, format_junit(examination), mode=0o644)
    if options.json:
        as_json(examination.as_json())
    else:
        _tell_guarantees(examination)
    return 0 if examination.well else 1


def _tell_guarantees(examination: "Examination") -> None:
    from deedbook_author.guarantees.report import describe_results

    for status, line in describe_results(examination):
        colour = _STATUS_COLOURS.get(status)
        say(line if colour is None or line.startswith(" ") else f"{paint(line[:7], colour)}{line[7:]}")
