"""``deedbook replay``: a session told from its ledger alone."""

import click

from . import completing
from .common import Asked, json_option
from .output import as_json, say


@click.command("replay")
@click.argument("session", shell_complete=completing.sessions)
@json_option
@click.pass_obj
def command(asked: Asked, session: str) -> int:
    """Tell the story of SESSION (an id, or a file) from its ledger; `--json` prints the state it came to."""
    from deedbook.folds import SnapshotFold, fold, transcript
    from deedbook.reader import read

    from .ledgers import session_file

    place = session_file(asked.workspace, session)
    if asked.json:
        as_json(fold(SnapshotFold(), read(place)).as_json())
    else:
        for line in transcript(read(place)):
            say(line)
    return 0
