"""Make the key that signs the workspace's log, or another one."""

from pathlib import Path

import click

from deedbook.cli.common import GlobalOptions, display_path, json_option
from deedbook.cli.output import data_command, format_error, message, report_error
from deedbook_approvals.commands.keys import out_option, refuse_place, tell

UNSOUND = 4


@data_command
@click.command("rotate")
@click.option(
    "--lost", is_flag=True, help="The key in force is lost: let the new one come into force without its signature."
)
@out_option
@json_option
@click.pass_obj
def command(asked: GlobalOptions, out: str | None, *, lost: bool) -> int:
    """Make the key that signs this workspace's log, or a new one in its place, and print its public half.

    From then on checkpoints are written, and the present ledgers are covered at once.
    """
    from deedbook.charter.settings import CheckpointSettings
    from deedbook.format.files import Folder
    from deedbook.workspace.own_ledger import open_own_ledger
    from deedbook.workspace.workspace import read_workspace
    from deedbook_log.checkpoints.operations import LogOperations

    refuse_place(out)
    workspace = read_workspace(asked.workspace)
    settings = CheckpointSettings.read(workspace.checkpoints, workspace.root)
    with open_own_ledger(workspace) as ledger, Folder.at(workspace.state) as state:
        rotation = LogOperations(state, ledger, settings).rotate_key(lost=lost)
    tell(asked, [rotation.key], out)
    previous = f"the key before, {rotation.previous.id}, " if rotation.previous else ""
    if previous:
        fate = "is lost and has not signed this" if rotation.is_previous_lost else "has signed this and is removed"
        message(f"{previous}{fate}")
    message(
        f"the private key is in {display_path(rotation.place)}; "
        "anyone who can read it can sign checkpoints of this workspace"
    )
    if not asked.json:
        file = Path(out).name if out else "log.pub"
        message(f"readers trust it by .system/deedbook.yaml: checkpoints: {{keys: [{file}]}}")
    left_out = rotation.checkpoint.coverage.left_out
    for name, why in left_out.items():
        report_error(f"session {name} is not covered: {format_error(why)}")
    return UNSOUND if left_out else 0
