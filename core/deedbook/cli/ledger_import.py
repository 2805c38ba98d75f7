"""``deedbook ledger import``: an old ledger, taken in as it is."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import Asked, principal_option, shown
from .output import message, say

if TYPE_CHECKING:
    from deedbook.verification.report import Report


@click.command("import")
@click.argument("file")
@principal_option
@click.option("--as-is", metavar="REASON", help="Take it in although its own rules say that it is not sound.")
@click.pass_obj
def command(asked: Asked, file: str, principal: str | None, as_is: str | None) -> int:
    """Take in FILE, a ledger of envelope 1.0 or of seed 000's events: its bytes stay, and its sessions have ids here.

    Every reading command shows them. What was taken in already is left as it is.
    """
    from deedbook.canonical import digest
    from deedbook.errors import LedgerError, fault
    from deedbook.files import Folder
    from deedbook.keeping.authors import author
    from deedbook.keeping.imports import MAX_BYTES, imports, old_form, take_in
    from deedbook.keeping.opening import own
    from deedbook.kernel import read_workspace
    from deedbook.schema import Schemas, data_folder
    from deedbook.verify import verify_file
    from deedbook.workspaces.site import Site

    source, place = read_workspace(asked.workspace), Path(file)
    by = author(source, principal)
    try:
        with Folder.at(place.parent) as folder:
            raw = folder.read(place.name, limit=MAX_BYTES)
    except FileNotFoundError:
        raise click.BadParameter(f"there is no file {file!r}", param_hint="FILE") from None
    known = {each.sha256: each for each in imports(source.state)}
    found = known.get(digest(raw))
    if found is None:
        old_form(raw, shown(place))
        report = verify_file(place, schemas=Schemas.load(data_folder("schemas")))
        if not report.sound and as_is is None:
            why = f"its own rules find it unsound ({_first(report)}); to take it in nevertheless, say why: --as-is"
            raise LedgerError(fault("IMPORT_REFUSED", why, place=shown(place)))
        with Folder.at(source.state, create=True) as state, own(Site.of(source)) as ledger:
            found = take_in(state, ledger, raw, name=place.name, by=by, sound=report.sound, as_is=as_is)
        message(f"taken in: {shown(found.place(source.state))}")
    else:
        message(f"it was taken in already, by {found.by} at {found.ts}; nothing was written")
    for each in found.sessions:
        say(f"{each.id}  {each.state}  {each.events} events  {each.started}")
    return 0


def _first(report: "Report") -> str:
    """Return the first thing that is wrong."""
    failures = [*report.bytes.failures, *report.structure.failures]
    return str(failures[0]) if failures else "its last line is torn"
