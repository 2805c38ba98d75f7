"""``deedbook sessions``: the lives of work in this workspace."""

import click

from . import completing
from .common import Asked, Suggesting, json_option
from .output import as_json, message, say, table


@click.group("sessions", cls=Suggesting, invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context) -> int:
    """List the sessions: open (being written), ended, interrupted, empty (never began), or damaged."""
    if ctx.invoked_subcommand is not None:
        return 0
    import attrs

    from deedbook.files import Folder
    from deedbook.kernel import read_workspace
    from deedbook.reader import sessions

    state, found = read_workspace(ctx.obj.workspace).state, []
    if state.is_dir():
        with Folder.at(state) as folder:
            found = sessions(folder)
    if ctx.obj.json:
        as_json({"schema_version": "v1", "sessions": [attrs.asdict(session) for session in found]})
    elif found:
        table((each.id, each.state, each.started, _count(each.events)) for each in found)
    else:
        say("no sessions yet")
    return 0


def _count(events: int) -> str:
    return "1 event" if events == 1 else f"{events} events"


@command.command("close")
@click.argument("session", shell_complete=completing.sessions)
@click.pass_obj
def close(asked: Asked, session: str) -> int:
    """End an interrupted SESSION: its open calls become unknown, and session.end is written.

    Of a session that is empty, because it never began, the folder is removed.
    """
    from deedbook.kernel import close_session, discard_session, read_workspace

    from .ledgers import session_id

    source = read_workspace(asked.workspace)
    identity = session_id(source, session)
    if discard_session(source, identity):
        message(f"session {identity} never began; its empty folder is removed")
        return 0
    unknown = close_session(source, identity)
    calls = (
        "no call was open" if not unknown else f"{unknown} open {'call is' if unknown == 1 else 'calls are'} unknown"
    )
    message(f"session {identity} is closed; {calls}")
    return 0
