"""``deedbook resume``: go on with a run that waits for a person, or was interrupted."""

from typing import TYPE_CHECKING

import click

from . import completing
from .common import GlobalOptions, json_option, wait_option

if TYPE_CHECKING:
    from deedbook.call.session import Session
    from deedbook.kernel import Kernel


@click.command("resume")
@click.argument("session", shell_complete=completing.sessions)
@click.option("--accept-charter", default="", metavar="DIGEST", help="Go on under this charter, if it has changed.")
@wait_option
@json_option
@click.pass_obj
def command(options: GlobalOptions, session: str, accept_charter: str, wait: float) -> int:
    """Go on with the run of SESSION, which waits for a person or was interrupted.

    What is recorded is not done again: the run gets the recorded answers, and goes on where the record ends.
    """
    from deedbook.workspace.workspace import read_workspace

    from .execution import execute, reply_ending
    from .ledgers import own_session
    from .performing import profile_of, resume_session

    workspace = read_workspace(options.workspace)
    identity = own_session(workspace, session)

    def begin(kernel: "Kernel") -> "Session":
        return resume_session(kernel, identity, wait, accept_charter)

    profile = profile_of(workspace.state, identity)
    return execute(options, begin, lambda opened: reply_ending(opened.go_on()), profile=profile)
