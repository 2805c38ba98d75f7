"""Check all that Deedbook stands on, and how to mend it."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs
import click

from deedbook.cli.common import GlobalOptions, json_option
from deedbook.cli.output import as_json, data_command, paint, say

if TYPE_CHECKING:
    from deedbook.contract.features import Check

SECTION: Final = "Begin"
_COLOURS: Final = MappingProxyType({"ok": "green", "note": "yellow", "fault": "red"})


@data_command
@click.command("doctor")
@json_option
@click.pass_obj
def command(options: GlobalOptions) -> int:
    """Check Python, plugins, the workspace, its lock and ledgers, disk, file locks, clock and the system's kernel.

    Loads and constructs every plugin that the workspace uses. Exit status 1 if there is a fault.
    """
    from pathlib import Path

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
