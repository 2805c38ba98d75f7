"""Correct a recorded event by a further event."""

from typing import Any

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, principal_option, read_json
from deedbook.cli.output import data_command, format_error, message, report_error


@data_command
@click.command("amend")
@click.argument("session", shell_complete=completing.sessions)
@click.argument("seq", type=click.IntRange(min=0))
@click.option(
    "--set", "sets", multiple=True, metavar="POINTER=JSON", help="The new value at POINTER, such as /args/text."
)
@click.option("--remove", "removes", multiple=True, metavar="POINTER", help="Remove the member at POINTER.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is recorded.")
@principal_option
@click.pass_obj
def command(
    options: GlobalOptions,
    session: str,
    seq: int,
    sets: tuple[str, ...],
    removes: tuple[str, ...],
    reason: str,
    principal: str | None,
) -> int:
    """Amend event SEQ of SESSION (an id, or `workspace`); the recorded line stays, and both versions are shown."""
    from deedbook.format.errors import recordable
    from deedbook.format.schema import Schemas, data_folder
    from deedbook.maintenance.authors import author
    from deedbook.maintenance.extending import notify_extended
    from deedbook.workspace.site import Site
    from deedbook.workspace.workspace import read_workspace
    from deedbook_log.commands.naming import writable_ledger
    from deedbook_log.corrections.amending import amend

    patch = [*map(_change, sets), *({"at": pointer} for pointer in removes)]
    source = read_workspace(options.workspace)
    name, by = writable_ledger(source, session), author(source, principal)
    schemas = Schemas.load(data_folder("schemas"))
    made = amend(Site.of(source), schemas, name, seq, patch, reason=recordable(reason), by=by)
    notify_extended(source, name, lambda why: report_error(format_error(why)))
    message(f"event {seq} of {name} is amended by event {made}")
    return 0


def _change(text: str) -> dict[str, Any]:
    """Return one change, from ``POINTER=JSON``; raises `click.BadParameter`."""
    pointer, sign, value = text.partition("=")
    if not sign:
        raise click.BadParameter(f"{text!r} has no `=`; expected POINTER=JSON", param_hint="--set")
    hint = f"put text in quotation marks: --set '{pointer}=\"…\"'"
    return {"at": pointer, "value": read_json(value, "--set", hint=hint)}
