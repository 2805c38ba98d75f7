"""Prove that an event stands in the log, or that it only grew."""

from typing import Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, json_option
from deedbook.cli.output import as_json, data_command

SECTION: Final = "Proof"


@data_command
@click.command("prove")
@click.argument("session", required=False, shell_complete=completing.sessions)
@click.option("--event", type=click.IntRange(0), metavar="SEQ", help="Prove this event, whose line is in the proof.")
@click.option(
    "--consistency", nargs=2, metavar="OLD NEW",
    help="Prove that a checkpoint goes on from an older one: each a size, `newest`, or a file with a signed note.",
)  # fmt: skip
@json_option
@click.pass_obj
def command(asked: GlobalOptions, session: str | None, event: int | None, consistency: tuple[str, str] | None) -> int:
    """Print a proof, as JSON, that SESSION (or one event of it) is in the workspace's log, up to a checkpoint.

    `workspace` is the workspace's own ledger. `deedbook verify --proof FILE` checks it, on any machine.
    """
    from deedbook.cli.ledgers import WORKSPACE, own_session, read_recorded
    from deedbook.format.files import Folder
    from deedbook_audit import proving

    if bool(session) == bool(consistency) or (consistency and event is not None):
        raise click.UsageError("name a SESSION, with --event SEQ or without, or else --consistency OLD NEW")
    source = read_recorded(asked.workspace)
    with Folder.at(source.state) as state:
        if consistency:
            as_json(proving.prove_consistency(state, *map(_read_note, consistency)))
        elif session:
            ledger = WORKSPACE if session == WORKSPACE else own_session(source, session)
            as_json(proving.prove_inclusion(state, ledger, event))
    return 0


def _read_note(name: str) -> str:
    """Return a size or ``newest`` unchanged, else the note in the file of that name."""
    from pathlib import Path

    from deedbook.format.files import Folder
    from deedbook.format.notes import MAX_TEXT

    if name.isdecimal() or name == "newest":
        return name
    place = Path(name)
    try:
        with Folder.at(place.parent) as folder:
            return folder.read(place.name, limit=MAX_TEXT).decode(errors="replace")
    except FileNotFoundError:
        raise click.BadParameter(f"{name!r} is no size and no file", param_hint="--consistency") from None
