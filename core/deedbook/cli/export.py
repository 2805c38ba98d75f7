"""``deedbook export``: a session in another form."""

from collections.abc import Iterable
from pathlib import Path

import click

from . import completing
from .common import Asked
from .output import write

FORMS = ("seed-002", "cloudevents")


@click.command("export")
@click.argument("session", shell_complete=completing.sessions)
@click.option("--as", "form", type=click.Choice(FORMS), default=FORMS[0], show_default=True, help="The form to write.")
@click.option("--no-data", is_flag=True, help="As CloudEvents: leave payloads out.")
@click.option("--source", metavar="URI", default="", help="As CloudEvents: the source, in place of the ledger's own.")
@click.pass_obj
def command(asked: Asked, session: str, form: str, source: str, *, no_data: bool) -> int:
    """Write SESSION (an id, or a file) to standard output, one event a line: as envelope 1.0, or as CloudEvents 1.0."""
    from .ledgers import session_file
    from .reading import torn

    if form == FORMS[0] and (no_data or source):
        raise click.UsageError("--no-data and --source go with --as cloudevents")
    place = session_file(asked.workspace, session)
    if form == FORMS[0]:
        write(_seed_002(place))
        return torn(place)
    from deedbook.observing.cloudevents import cloudevents
    from deedbook.observing.recorded import Recording

    with Recording(place) as recording:
        write(cloudevents(recording(), source=source, data=not no_data))
    return torn(place)


def _seed_002(place: Path) -> Iterable[bytes]:
    from deedbook.errors import LedgerError, fault
    from deedbook.reader import read
    from deedbook.verification.export import seed_002

    from .ledgers import identity, is_own

    if is_own(place):
        why = "that is the workspace ledger, and no session; it goes --as cloudevents, and sessions go as seed-002"
        raise LedgerError(fault("USAGE", why))
    session_id, trace_id = identity(place)
    return seed_002(read(place), session_id=session_id, trace_id=trace_id)
