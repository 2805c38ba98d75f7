"""Lift freezes."""

from typing import Final

import click

from deedbook.cli.common import GlobalOptions, json_option
from deedbook.cli.output import data_command, message

from .freeze import as_option, print_others, print_state

SECTION: Final = "Do"


@data_command
@click.command("thaw")
@click.argument("freeze", required=False, default="")
@click.option("--all", "every", is_flag=True, help="Lift all freezes, as without FREEZE.")
@as_option
@json_option
@click.pass_obj
def command(options: GlobalOptions, freeze: str, principal: str | None, *, every: bool) -> int:
    """Lift the freeze with the id FREEZE, or all.

    The beginning of an id is enough. Calls that were denied are not made again, and withdrawn requests stay so.
    """
    from deedbook_operate.freezing import open_freezer

    if freeze and every:
        raise click.UsageError("give the id of one freeze, or --all")
    with open_freezer(options.workspace) as freezer:
        lifted = freezer.thaw(freeze, principal)
        status = freezer.status()
        for note in freezer.notes:
            message(note)
    if options.json:
        print_state(status, lifted=[each.as_json() for each in lifted])
        return 0
    for each in lifted:
        message(f"lifted: {each} ({each.id[:8]})")
    if not lifted:
        message("nothing was frozen")
    print_others(status)
    return 0
