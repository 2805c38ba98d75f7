"""``deedbook tree``: what caused what."""

import click

from deedbook.folds import TreeFold, fold
from deedbook.reader import read

from .common import json_option
from .ledgers import session_file
from .output import as_json, say


@click.command("tree")
@click.argument("session")
@json_option
@click.pass_obj
def command(workspace: str, session: str, *, as_json_: bool) -> int:
    """Show the causal tree of SESSION (an id, or a file), with its roots and orphans counted."""
    tree = fold(TreeFold(), read(session_file(workspace, session)))
    if as_json_:
        as_json({"schema_version": "v1", **tree.as_json()})
    else:
        for line in tree.lines():
            say(line)
    return 0
