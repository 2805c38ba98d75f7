"""``deedbook export``: a session in another form."""

import sys

import click

from . import completing
from .common import Asked

FORMS = ("seed-002",)


@click.command("export")
@click.argument("session", shell_complete=completing.sessions)
@click.option("--as", "form", type=click.Choice(FORMS), default=FORMS[0], show_default=True, help="The form to write.")
@click.pass_obj
def command(asked: Asked, session: str, form: str) -> int:
    """Write SESSION (an id, or a file) to standard output as envelope 1.0, one event a line."""
    from deedbook.reader import read
    from deedbook.verification.export import seed_002

    from .ledgers import identity, session_file

    place = session_file(asked.workspace, session)
    session_id, trace_id = identity(place)
    lines = seed_002(read(place), session_id=session_id, trace_id=trace_id)
    if sys.stdout:
        sys.stdout.buffer.writelines(lines)
    return 0
