"""Remove a payload from its line: the last resort."""

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, principal_option
from deedbook.cli.output import data_command, format_error, message, report_error, say


@data_command
@click.command("excise")
@click.argument("session", shell_complete=completing.sessions)
@click.argument("seq", type=click.IntRange(min=0))
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is recorded.")
@click.option("--yes", is_flag=True, help="Do it; without this option, only show what would be removed.")
@principal_option
@click.pass_obj
def command(options: GlobalOptions, session: str, seq: int, reason: str, principal: str | None, *, yes: bool) -> int:
    """Remove the payload of event SEQ of SESSION (an id, or `workspace`) for good. The last resort.

    Use it for values that were never sealed and must not stay. Sealed values are erased: `deedbook ledger erase`. The
    line's header and all hashes stay, and the ledger records what was removed, when and by whom.
    """
    from deedbook.format.errors import recordable
    from deedbook.maintenance.authors import author
    from deedbook.maintenance.extending import notify_extended
    from deedbook.workspace.site import Site
    from deedbook.workspace.workspace import read_workspace
    from deedbook_log.commands.naming import writable_ledger
    from deedbook_log.corrections.excising import excise, preview, refuse_missing, renew_pages

    source = read_workspace(options.workspace)
    name, by, site = writable_ledger(source, session), author(source, principal), Site.of(source)
    if not yes:
        line = preview(site, name, seq, by)
        if line.is_excised:
            message(f"the payload of event {seq} of {name} ({line.event_type}) is removed already")
            return 0
        say(f"event {seq} of {name}: {line.event_type}, {line.ts}, a payload of {len(line.payload)} bytes")
        message("it would be removed from the ledger for good and cannot be restored; to do it, add --yes")
        return 2
    refuse_missing(source.state)
    line = excise(site, name, seq, reason=recordable(reason), by=by)
    renew_pages(source, name)
    notify_extended(source, name, lambda why: report_error(format_error(why)))
    if line.is_excised:
        message(f"the payload of event {seq} of {name} ({line.event_type}) was removed already")
        return 0
    message(f"the payload of event {seq} of {name} ({line.event_type}) is removed; delete it in backups yourself")
    return 0
