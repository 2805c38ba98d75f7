"""Sign how far all ledgers have come."""

from typing import TYPE_CHECKING, Any

import click

from deedbook.cli.common import GlobalOptions, json_option
from deedbook.cli.output import as_json, data_command, format_error, message, report_error, say

if TYPE_CHECKING:
    from deedbook.format.errors import DomainError
    from deedbook_log.checkpoints.operations import CheckpointResult

UNSOUND = 4


@data_command
@click.command("checkpoint")
@json_option
@click.pass_obj
def command(asked: GlobalOptions) -> int:
    """Sign the current state of all ledgers, also those that other processes write or left behind.

    Prints the signed checkpoint, which you should keep elsewhere.
    """
    from deedbook.charter.settings import CheckpointSettings
    from deedbook.format.files import Folder
    from deedbook.workspace.own_ledger import open_own_ledger
    from deedbook.workspace.workspace import read_workspace
    from deedbook_log.checkpoints.operations import LogOperations

    workspace = read_workspace(asked.workspace)
    settings = CheckpointSettings.read(workspace.checkpoints, workspace.root)
    with open_own_ledger(workspace) as ledger, Folder.at(workspace.state) as state:
        result = LogOperations(state, ledger, settings).write_checkpoint()
    if asked.json:
        as_json(_build_document(result))
    else:
        _print_result(result)
    for name, why in result.coverage.left_out.items():
        report_error(f"session {name} is not covered: {format_error(why)}")
    return UNSOUND if result.coverage.left_out or any(map(_is_denied, result.failures)) else 0


def _is_denied(why: "DomainError") -> bool:
    """Return whether a witness knows another history than this workspace's."""
    return why.code == "WITNESS_REFUSED"


def _print_result(result: "CheckpointResult") -> None:
    last = result.coverage.checkpoints[-1]
    sessions = sum(made.sessions for made in result.coverage.checkpoints)
    grown = "no session has" if not sessions else "1 session has" if sessions == 1 else f"{sessions} sessions have"
    message(f"checkpoint {last.size} is written; {grown} grown since the last")
    for line in result.note.splitlines():
        say(line)
    for why in result.failures:
        (report_error if _is_denied(why) else message)(format_error(why))


def _build_document(result: "CheckpointResult") -> dict[str, Any]:
    last = result.coverage.checkpoints[-1]
    return {
        "schema_version": "v1",
        "size": last.size,
        "note": result.note,
        "sessions": sum(made.sessions for made in result.coverage.checkpoints),
        "left_out": [
            {"session_id": name, "code": why.code, "message": str(why)}
            for name, why in result.coverage.left_out.items()
        ],
        "unheard": [{"code": why.code, "message": str(why)} for why in result.failures],
    }
