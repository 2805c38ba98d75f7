"""``deedbook workdocs``: the pages of sessions, written anew."""

import click

from . import completing
from .common import Asked, json_option, shown
from .output import as_json, say


@click.command("workdocs")
@click.argument("session", required=False, shell_complete=completing.sessions)
@json_option
@click.pass_obj
def command(asked: Asked, session: str | None) -> int:
    """Write task.md, context.md and outcome.md of all sessions anew from their ledgers, or those of SESSION.

    They go where the workspace wants them (`workdocs:`), else below the state folder.
    """
    from deedbook.files import Folder
    from deedbook.kernel import read_workspace
    from deedbook.reader import sessions
    from deedbook.workdocs import write

    from .ledgers import session_id

    source = read_workspace(asked.workspace)
    if session is not None:
        names = [session_id(source, session)]
    elif source.state.is_dir():
        with Folder.at(source.state) as state:
            names = [each.id for each in sessions(state) if each.events]
    else:
        names = []
    pages = [page for name in names for page in write(source.workdocs or True, source.root, source.state, name)]
    if asked.json:
        as_json({"schema_version": "v1", "pages": [str(page) for page in pages]})
    else:
        for page in pages:
            say(shown(page))
    return 0
