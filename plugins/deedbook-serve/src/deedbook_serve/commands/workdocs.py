"""Write the pages of sessions anew from their ledgers."""

from typing import Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, display_path, json_option
from deedbook.cli.output import as_json, data_command, say

SECTION: Final = "Record"


@data_command
@click.command("workdocs")
@click.argument("session", required=False, shell_complete=completing.sessions)
@json_option
@click.pass_obj
def command(asked: GlobalOptions, session: str | None) -> int:
    """Write task.md, context.md and outcome.md of all sessions anew from their ledgers, or those of SESSION.

    They go where the workspace wants them (`workdocs:`), else below the state folder.
    """
    from deedbook.cli.ledgers import session_id
    from deedbook.format.files import Folder
    from deedbook.format.reader import list_sessions
    from deedbook.workspace.workspace import read_workspace
    from deedbook_serve.workdocs import write

    source = read_workspace(asked.workspace)
    if session is not None:
        names = [session_id(source, session)]
    elif source.state.is_dir():
        with Folder.at(source.state) as state:
            names = [each.id for each in list_sessions(state) if each.events]
    else:
        names = []
    pages = [page for name in names for page in write(source.workdocs or True, source.root, source.state, name)]
    if asked.json:
        as_json({"schema_version": "v1", "pages": [str(page) for page in pages]})
    else:
        for page in pages:
            say(display_path(page))
    return 0
