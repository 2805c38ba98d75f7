"""Show the causal tree of a session."""

from pathlib import Path
from typing import Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, json_option, span_option
from deedbook.cli.output import as_json, data_command, say

SECTION: Final = "Record"


@data_command
@click.command("tree")
@click.argument("session", required=False, shell_complete=completing.sessions)
@click.option("--trace", metavar="ID", help="The session with this trace id (32 hex digits), instead of SESSION.")
@span_option
@click.option("--max-depth", type=click.IntRange(0), metavar="N", help="Count what is more than N levels below a root.")
@click.option("--no-payload", is_flag=True, help="Show only the types of events.")
@click.option("--ids", is_flag=True, help="Show the seq, the span, the actor and the time of each event.")
@json_option
@click.pass_obj
def command(
    asked: GlobalOptions,
    session: str | None,
    trace: str | None,
    span: str | None,
    max_depth: int | None,
    *,
    no_payload: bool,
    ids: bool,
) -> int:
    """Show the causal tree of SESSION (an id, or a file), with its roots and orphans counted."""
    from deedbook.format.folds import fold
    from deedbook_audit.upcasting.reader import read
    from deedbook_inspect.event_tree import TreeFold, subtree
    from deedbook_inspect.reading import report_torn_end, types_in

    place = _find_ledger(asked, session, trace)
    tree = fold(TreeFold(types_in(place)), subtree(read(place), span) if span else read(place))
    if asked.json:
        as_json(tree.as_json())
    else:
        for line in tree.lines(depth=max_depth, payloads=not no_payload, ids=ids):
            say(line)
    return report_torn_end(place)


def _find_ledger(asked: GlobalOptions, session: str | None, trace: str | None) -> Path:
    from deedbook_audit.commands.ledgers import session_file, session_of_trace

    if (session is None) == (trace is None):
        raise click.UsageError("name one session: SESSION (last is the newest), or --trace ID")
    return session_file(asked.workspace, session) if session else session_of_trace(asked.workspace, str(trace))
