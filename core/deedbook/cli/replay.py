"""``deedbook replay``: a session told from its ledger alone."""

import click

from deedbook.folds import SnapshotFold, fold, transcript
from deedbook.reader import read

from .common import json_option
from .ledgers import session_file
from .output import as_json, say


@click.command("replay")
@click.argument("session")
@json_option
@click.pass_obj
def command(workspace: str, session: str, *, as_json_: bool) -> int:
    """Tell the story of SESSION (an id, or a file) from its ledger; `--json` prints the state it came to."""
    place = session_file(workspace, session)
    if as_json_:
        as_json({"schema_version": "v1", **fold(SnapshotFold(), read(place)).as_json()})
    else:
        for line in transcript(read(place)):
            say(line)
    return 0
