"""Check ledgers: bytes, structure, decisions, and the log."""

from typing import Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, display_path, json_option
from deedbook.cli.output import as_json, data_command, paint, report_error, say

from .proof import check_proof

SECTION: Final = "Proof"

UNSOUND = 4


@data_command
@click.command("verify")
@click.argument("ledger", required=False, shell_complete=completing.sessions)
@click.option(
    "--proof",
    metavar="FILE",
    help="Check the proof in FILE, which `deedbook prove` printed, and nothing else; holds LEDGER against it.",
)
@click.option("--checkpoint", multiple=True, metavar="FILE", help="Hold the log against a checkpoint that you kept.")
@click.option(
    "--witness", multiple=True, metavar="PLACE", help="Ask the witness at a folder or URL for its newest checkpoint."
)
@click.option("--log-key", multiple=True, metavar="KEY", help="Believe this public key of a log, or the one in a file.")
@click.option("--witness-key", multiple=True, metavar="KEY", help="Believe the witness with this key.")
@click.option("--plugins", is_flag=True, help="Ask pure gates of plugins again, where just their code is installed.")
@click.option("--jobs", default=1, metavar="N", type=click.IntRange(1, 64), help="Use N processes.")
@json_option
@click.pass_obj
def command(
    asked: GlobalOptions,
    /,
    ledger: str | None,
    proof: str | None,
    *,
    plugins: bool,
    jobs: int,
    **given: tuple[str, ...],
) -> int:
    """Check LEDGER (a session, a file, a state folder), or every ledger of the workspace: bytes, structure, decisions.

    The ledgers are compared with the workspace's checkpoints, and those with the checkpoints that you, its witnesses
    and the state folder have. The first line is the verdict. No plugin is imported unless --plugins is given.
    """
    if proof is not None:
        if given["checkpoint"] or given["witness"]:
            raise click.UsageError("--checkpoint and --witness do not go with --proof, which stands by itself")
        return check_proof(asked, proof, given["log_key"], given["witness_key"], ledger)
    from deedbook_audit.commands.progress import ReadProgress
    from deedbook_audit.trust import TrustInputs
    from deedbook_audit.verdicts import Output, build_document, print_verification
    from deedbook_audit.whole import verify

    from .naming import own_keys, select_folder, select_one, select_workspace

    whole = select_folder(ledger) if ledger else select_workspace(asked.workspace)
    selection = whole or select_one(asked.workspace, ledger or "")
    inputs = TrustInputs(given["log_key"], given["witness_key"], given["checkpoint"], given["witness"])
    with ReadProgress(selection.size) as reading:
        found = verify(
            selection, inputs, own_keys=own_keys, plugins=plugins, jobs=jobs, watch=reading, named=display_path
        )
    if asked.json:
        as_json(build_document(found))
    else:
        print_verification(found, Output(say, report_error, paint), alone=whole is None)
    return 0 if found.verdict.sound else UNSOUND
