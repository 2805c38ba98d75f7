"""``deedbook tree``: what caused what."""

import click

from . import completing
from .common import Asked, json_option
from .output import as_json, say


@click.command("tree")
@click.argument("session", shell_complete=completing.sessions)
@json_option
@click.pass_obj
def command(asked: Asked, session: str) -> int:
    """Show the causal tree of SESSION (an id, or a file), with its roots and orphans counted."""
    from deedbook.folds import TreeFold, fold
    from deedbook.reader import read

    from .ledgers import session_file
    from .reading import torn

    place = session_file(asked.workspace, session)
    tree = fold(TreeFold(), read(place))
    if asked.json:
        as_json(tree.as_json())
    else:
        for line in tree.lines():
            say(line)
    return torn(place)
