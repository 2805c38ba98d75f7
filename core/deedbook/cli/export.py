"""``deedbook export``: a session in another form."""

import sys

import click

from deedbook.export import seed_002
from deedbook.reader import read

from .ledgers import identity, session_file

FORMS = ("seed-002",)


@click.command("export")
@click.argument("session")
@click.option("--as", "form", type=click.Choice(FORMS), required=True, help="The form to write.")
@click.pass_obj
def command(workspace: str, session: str, form: str) -> int:
    """Write SESSION (an id, or a file) to standard output as envelope 1.0, one event a line."""
    place = session_file(workspace, session)
    session_id, trace_id = identity(place)
    for line in seed_002(read(place), session_id=session_id, trace_id=trace_id):
        sys.stdout.buffer.write(line)
    return 0
