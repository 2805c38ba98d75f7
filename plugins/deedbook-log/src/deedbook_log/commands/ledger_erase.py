"""Delete sealed values; lines and proofs stay."""

from typing import TYPE_CHECKING

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, principal_option
from deedbook.cli.output import data_command, format_error, message, report_error, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbook.workspace.site import Site
    from deedbook_log.corrections.erasing import Copy, ErasureResult


@data_command
@click.command("erase")
@click.argument("session", shell_complete=completing.sessions)
@click.option("--event", "seq", type=click.IntRange(min=0), metavar="SEQ", help="Only the sealed values of this event.")
@click.option("--digest", metavar="D", help="Only the sealed value with this digest.")
@click.option("--copies", is_flag=True, help="Also the same values in other events and ledgers.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is recorded.")
@principal_option
@click.pass_obj
def command(
    options: GlobalOptions,
    session: str,
    seq: int | None,
    digest: str | None,
    reason: str,
    principal: str | None,
    *,
    copies: bool,
) -> int:
    """Delete the sealed values of SESSION (an id, or `workspace`); its lines and all proofs stay.

    Backups are not reached; delete the values there yourself.
    """
    from deedbook.format.errors import recordable
    from deedbook.maintenance.authors import author
    from deedbook.maintenance.extending import notify_extended
    from deedbook.workspace.site import Site
    from deedbook.workspace.workspace import read_workspace
    from deedbook_log.commands.naming import writable_ledger
    from deedbook_log.corrections.erasing import erase

    source = read_workspace(options.workspace)
    site, by = Site.of(source), author(source, principal)
    name, reason = writable_ledger(source, session), recordable(reason)
    done = erase(site, name, seq=seq, digest=digest, reason=reason, by=by)
    _tell(name, done)
    notify_extended(source, name, lambda why: report_error(format_error(why)))
    if not copies:
        return _report_copies(done.copies)
    left = [each for each in done.copies if not _erase_copy(site, each, reason, by)]
    return _report_copies(left) or (1 if left else 0)


def _tell(name: str, done: "ErasureResult") -> None:
    for digest in done.deleted:
        say(digest)
    if done.deleted:
        count, noun = len(done.deleted), "value is" if len(done.deleted) == 1 else "values are"
        message(f"{name}: {count} sealed {noun} erased; delete them in backups yourself")
    else:
        message(f"{name}: no sealed value is left; it was erased before, or never copied here")


def _erase_copy(site: "Site", copy: "Copy", reason: str, by: str) -> bool:
    """Erase the same value in another ledger; report the error and return ``False`` if that fails."""
    from deedbook.format.errors import DeedbookError
    from deedbook_log.corrections.erasing import erase

    try:
        done = erase(site, copy.ledger, seq=None, digest=copy.digest, reason=reason, by=by)
    except DeedbookError as problem:
        report_error(f"{copy.ledger}: {format_error(problem.error)}")
        return False
    _tell(copy.ledger, done)
    return True


def _report_copies(copies: "Sequence[Copy]") -> int:
    """Print where else the same values are sealed, and how to erase them."""
    for each in copies:
        where = f"event {each.seq}" if each.seq is not None else "no event"
        message(f"the same value is sealed in {each.ledger} ({where}):")
        message(f"  deedbook ledger erase {each.ledger} --digest {each.digest} --reason …")
    if copies:
        message("or all at once, with --copies")
    return 0
