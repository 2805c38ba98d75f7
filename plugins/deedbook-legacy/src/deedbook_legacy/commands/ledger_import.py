"""Take in an old ledger, as it is."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deedbook.cli.common import GlobalOptions, display_path, principal_option
from deedbook.cli.output import data_command, message, say

if TYPE_CHECKING:
    from deedbook_audit.report import Report


@data_command
@click.command("import")
@click.argument("file")
@principal_option
@click.option("--as-is", metavar="REASON", help="Take it in although its own rules say that it is not sound.")
@click.pass_obj
def command(asked: GlobalOptions, file: str, principal: str | None, as_is: str | None) -> int:
    """Take in FILE, a ledger of an older form: its bytes stay, and its sessions have ids here.

    Older forms are envelope 1.0, seed 000's events and seed 002's EventLedger. Every reading command shows their
    sessions. What was taken in already is left as it is.
    """
    from deedbook.format.errors import LedgerError, fault
    from deedbook.format.files import Folder
    from deedbook.maintenance.authors import author
    from deedbook.maintenance.imports import list_imports, settle
    from deedbook.maintenance.opening import open_workspace_ledger
    from deedbook.workspace.site import Site
    from deedbook.workspace.workspace import read_workspace
    from deedbook_legacy.importer import import_ledger
    from deedbook_legacy.old_file import OldFile

    source, place = read_workspace(asked.workspace), Path(file)
    by = author(source, principal)
    try:
        opened = OldFile.open(place)
    except FileNotFoundError:
        raise click.BadParameter(f"there is no file {file!r}", param_hint="FILE") from None
    with opened as old:
        report = old.verify()
        found = {each.sha256: each for each in list_imports(source.state)}.get(old.sha256)
        if found is not None:
            with Folder.at(source.state) as state:
                settle(state)
            message(f"it was taken in already, by {found.by} at {found.ts}; nothing was written")
        else:
            if not report.faultless and as_is is None:
                why = f"its own rules find it unsound ({_first(report)}); to take it in nevertheless, say why: --as-is"
                raise LedgerError(fault("IMPORT_REFUSED", why, place=display_path(place)))
            with Folder.at(source.state, create=True) as state, open_workspace_ledger(Site.of(source)) as ledger:
                found = import_ledger(state, ledger, old, report, by=by, as_is=as_is)
            message(f"taken in: {display_path(found.place(source.state))}")
    if found.verdict == "unhashed":
        message("its form has no hashes: what it said before it was taken in cannot be verified")
    for each in found.sessions:
        say(f"{each.id}  {each.state}  {each.events} events  {each.started}")
    return 0


def _first(report: "Report") -> str:
    """Return the first thing that is wrong."""
    failures = [*report.bytes.failures, *report.structure.failures]
    return str(failures[0]) if failures else "its last line is torn"
