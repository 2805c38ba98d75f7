"""``deedbook ledger excise``: the payload of an event, taken out of its line; the last resort."""

import click

from . import completing
from .common import Asked, principal_option
from .output import complain, message, say, worded


@click.command("excise")
@click.argument("session", shell_complete=completing.sessions)
@click.argument("seq", type=click.IntRange(min=0))
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is recorded.")
@click.option("--yes", is_flag=True, help="Do it; without this it is only said what would be done.")
@principal_option
@click.pass_obj
def command(asked: Asked, session: str, seq: int, reason: str, principal: str | None, *, yes: bool) -> int:
    """Take the payload of event SEQ out of SESSION (an id, or `workspace`) for good. The last resort.

    For what was never sealed and must not stay. What was sealed is erased: `deedbook ledger erase`. The line's header
    and all hashes stay, and the ledger says what was taken out, when and by whom.
    """
    from deedbook.format.errors import recordable
    from deedbook.maintenance.authors import author
    from deedbook.maintenance.excising import excise, looked_at
    from deedbook.maintenance.extending import refuse_missing, renew_pages, tell_extended
    from deedbook.workspace.site import Site
    from deedbook.workspace.workspace import read_workspace

    from .ledgers import ledger_named

    source = read_workspace(asked.workspace)
    name, by, site = ledger_named(source, session), author(source, principal), Site.of(source)
    if not yes:
        line = looked_at(site, name, seq, by)
        if line.excised:
            message(f"the payload of event {seq} of {name} ({line.event_type}) is taken out already")
            return 0
        say(f"event {seq} of {name}: {line.event_type}, {line.ts}, a payload of {len(line.payload)} bytes")
        message("it would be taken out of the ledger for good, and cannot be brought back; to do it, add --yes")
        return 2
    refuse_missing(source.state)
    line = excise(site, name, seq, reason=recordable(reason), by=by)
    renew_pages(source, name)
    tell_extended(source, name, lambda why: complain(worded(why)))
    if line.excised:
        message(f"the payload of event {seq} of {name} ({line.event_type}) was taken out already")
        return 0
    message(f"the payload of event {seq} of {name} ({line.event_type}) is taken out; backups are yours to see to")
    return 0
