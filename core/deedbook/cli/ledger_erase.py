"""``deedbook ledger erase``: sealed values, deleted lawfully."""

from typing import TYPE_CHECKING

import click

from . import completing
from .common import Asked, principal_option
from .output import complain, message, say, worded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbook.maintenance.erasing import Copy, Erased
    from deedbook.workspace.site import Site


@click.command("erase")
@click.argument("session", shell_complete=completing.sessions)
@click.option("--event", "seq", type=click.IntRange(min=0), metavar="SEQ", help="Only what this event has sealed.")
@click.option("--digest", metavar="D", help="Only the sealed value with this digest.")
@click.option("--copies", is_flag=True, help="Also the same values where other events and ledgers have sealed them.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is recorded.")
@principal_option
@click.pass_obj
def command(
    asked: Asked, session: str, seq: int | None, digest: str | None, reason: str, principal: str | None, *, copies: bool
) -> int:
    """Delete the sealed values of SESSION (an id, or `workspace`); its lines stay, and so does every proof.

    Backups are not reached: see to them yourself.
    """
    from deedbook.format.errors import recordable
    from deedbook.maintenance.authors import author
    from deedbook.maintenance.erasing import erase
    from deedbook.maintenance.extending import tell_extended
    from deedbook.workspace.site import Site
    from deedbook.workspace.workspace import read_workspace

    from .ledgers import ledger_named

    source = read_workspace(asked.workspace)
    site, by = Site.of(source), author(source, principal)
    name, reason = ledger_named(source, session), recordable(reason)
    done = erase(site, name, seq=seq, digest=digest, reason=reason, by=by)
    _tell(name, done)
    tell_extended(source, name, lambda why: complain(worded(why)))
    if not copies:
        return _point_to(done.copies)
    left = [each for each in done.copies if not _erased(site, each, reason, by)]
    return _point_to(left) or (1 if left else 0)


def _tell(name: str, done: "Erased") -> None:
    for digest in done.deleted:
        say(digest)
    if done.deleted:
        count = len(done.deleted)
        message(
            f"{name}: {count} sealed {'value is' if count == 1 else 'values are'} erased; backups are yours to see to"
        )
    else:
        message(f"{name}: nothing was there any more; it was erased before, or never copied here")


def _erased(site: "Site", copy: "Copy", reason: str, by: str) -> bool:
    """Erase the same value elsewhere; say so where that cannot be done now."""
    from deedbook.format.errors import DeedbookError
    from deedbook.maintenance.erasing import erase

    try:
        done = erase(site, copy.ledger, seq=None, digest=copy.digest, reason=reason, by=by)
    except DeedbookError as problem:
        complain(f"{copy.ledger}: {worded(problem.error)}")
        return False
    _tell(copy.ledger, done)
    return True


def _point_to(copies: "Sequence[Copy]") -> int:
    """Say where else the same values are sealed, and how they are erased, too."""
    for each in copies:
        where = f"event {each.seq}" if each.seq is not None else "no event"
        message(f"the same value is sealed in {each.ledger} ({where}):")
        message(f"  deedbook ledger erase {each.ledger} --digest {each.digest} --reason …")
    if copies:
        message("or all at once, with --copies")
    return 0
