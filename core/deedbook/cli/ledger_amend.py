"""``deedbook ledger amend``: a recorded event, said otherwise by a further one."""

from typing import Any

import click

from . import completing
from .common import Asked, principal_option, read_json
from .output import complain, message, worded


@click.command("amend")
@click.argument("session", shell_complete=completing.sessions)
@click.argument("seq", type=click.IntRange(min=0))
@click.option(
    "--set", "sets", multiple=True, metavar="POINTER=JSON", help="What stands at POINTER, such as /args/text."
)
@click.option("--remove", "removes", multiple=True, metavar="POINTER", help="A member that is not said any more.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is recorded.")
@principal_option
@click.pass_obj
def command(
    asked: Asked,
    session: str,
    seq: int,
    sets: tuple[str, ...],
    removes: tuple[str, ...],
    reason: str,
    principal: str | None,
) -> int:
    """Say event SEQ of SESSION (an id, or `workspace`) otherwise; the recorded line stays, and both are shown."""
    from deedbook.format.errors import recordable
    from deedbook.format.schema import Schemas, data_folder
    from deedbook.maintenance.amending import amend
    from deedbook.maintenance.authors import author
    from deedbook.maintenance.extending import tell_extended
    from deedbook.workspace.site import Site
    from deedbook.workspace.workspace import read_workspace

    from .ledgers import ledger_named

    patch = [*map(_change, sets), *({"at": pointer} for pointer in removes)]
    source = read_workspace(asked.workspace)
    name, by = ledger_named(source, session), author(source, principal)
    schemas = Schemas.load(data_folder("schemas"))
    made = amend(Site.of(source), schemas, name, seq, patch, reason=recordable(reason), by=by)
    tell_extended(source, name, lambda why: complain(worded(why)))
    message(f"event {seq} of {name} is amended by event {made}")
    return 0


def _change(text: str) -> dict[str, Any]:
    """Return one change, from ``POINTER=JSON``; raises `click.BadParameter`."""
    pointer, sign, value = text.partition("=")
    if not sign:
        raise click.BadParameter(f"{text!r} has no `=`; expected POINTER=JSON", param_hint="--set")
    hint = f"text stands in quotation marks: --set '{pointer}=\"…\"'"
    return {"at": pointer, "value": read_json(value, "--set", hint=hint)}
