"""Write a session in another form."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions
from deedbook.cli.output import data_command, write

SECTION: Final = "Record"

FORMS = ("seed-002", "cloudevents")


@data_command
@click.command("export")
@click.argument("session", shell_complete=completing.sessions)
@click.option("--as", "form", type=click.Choice(FORMS), default=FORMS[0], show_default=True, help="The form to write.")
@click.option("--no-data", is_flag=True, help="As CloudEvents: leave payloads out.")
@click.option("--source", metavar="URI", default="", help="As CloudEvents: the source, in place of the ledger's own.")
@click.pass_obj
def command(asked: GlobalOptions, session: str, form: str, source: str, *, no_data: bool) -> int:
    """Write SESSION (an id, or a file) to standard output, one event per line: as envelope 1.0, or as CloudEvents 1.0.

    `workspace` names the workspace's own ledger: as envelope 1.0 it is the boots and shutdowns of its processes.
    """
    from deedbook_audit.commands.ledgers import session_file
    from deedbook_inspect.reading import report_torn_end, types_in

    if form == FORMS[0] and (no_data or source):
        raise click.UsageError("--no-data and --source go with --as cloudevents")
    place = session_file(asked.workspace, session)
    if form == FORMS[0]:
        write(_export_seed_002(place))
        return report_torn_end(place)
    from deedbook_inspect.observing.cloudevents import encode_events
    from deedbook_inspect.observing.ledger_reader import LedgerReader

    with LedgerReader(place) as recording:
        write(encode_events(recording(), source=source, data=not no_data, declared=types_in(place)))
    return report_torn_end(place)


def _export_seed_002(place: Path) -> Iterable[bytes]:
    """Return a session in the form of seed 002; for the workspace ledger, the runs of the system."""
    from deedbook_audit.commands.ledgers import is_own_ledger, ledger_identity
    from deedbook_audit.upcasting.reader import read
    from deedbook_inspect.export import export_seed_002
    from deedbook_inspect.system_export import build_run_id, export_runs

    session_id, trace_id = ledger_identity(place)
    if is_own_ledger(place):
        return export_runs(read(place), system=session_id, alive=_find_running(place))
    process = _find_process(place, session_id)
    return export_seed_002(
        read(place), session_id=session_id, trace_id=trace_id, run=build_run_id(process) if process else None
    )


def _find_running(place: Path) -> frozenset[str]:
    """Return the running processes, if the ledger at *place* lies in its state folder."""
    from deedbook.format.files import Folder
    from deedbook.maintenance.liveness import list_living

    with Folder.at(place.absolute().parent.parent) as state:
        return list_living(state)


def _find_process(place: Path, session: str) -> str:
    """Return the process that wrote a *session*, from the workspace ledger; empty if it is unknown."""
    from deedbook.format.errors import DeedbookError
    from deedbook.format.folds import fold
    from deedbook.maintenance.processes import ProcessesFold
    from deedbook_audit.upcasting.reader import read

    folder = place.absolute().parent
    if folder.parent.name != "sessions" or folder.name != session:
        return ""
    try:
        found = fold(ProcessesFold(), read(folder.parents[1] / "workspace")).sessions.get(session)
    except (DeedbookError, OSError):  # the ledger's own verification reports it
        return ""
    return found.process if found else ""
