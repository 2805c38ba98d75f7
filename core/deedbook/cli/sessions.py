"""``deedbook sessions``: the lives of work in this workspace."""

import attrs
import click

from deedbook.files import Folder
from deedbook.kernel import close_session, read_workspace
from deedbook.reader import sessions

from .common import json_option
from .ledgers import session_file
from .output import as_json, message, say, table


@click.group("sessions", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, *, as_json_: bool) -> int:
    """List the sessions: open (being written), ended, or interrupted."""
    if ctx.invoked_subcommand is not None:
        return 0
    state = read_workspace(ctx.obj).state
    if not state.is_dir():
        found = []
    else:
        with Folder.at(state) as folder:
            found = sessions(folder)
    if as_json_:
        as_json({"schema_version": "v1", "sessions": [attrs.asdict(session) for session in found]})
    elif found:
        table((s.id, s.state, s.started, f"{s.events} events") for s in found)
    else:
        say("no sessions yet")
    return 0


@command.command("close")
@click.argument("session")
@click.pass_obj
def close(workspace: str, session: str) -> int:
    """End an interrupted SESSION: its open calls become unknown, and session.end is written."""
    source = read_workspace(workspace)
    identity = session_file(workspace, session).parent.name
    unknown = close_session(source, identity)
    message(f"session {identity} is closed; {unknown} calls whose outcome is unknown")
    return 0
