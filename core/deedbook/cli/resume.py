"""``deedbook resume``: go on with a run that waits for a person, or was interrupted."""

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from . import completing
from .common import GlobalOptions, json_option, read_json, wait_option

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.continuation.settling import PersonResult
    from deedbook.kernel import Kernel
    from deedbook.sessions.session import Session

_APPROVERS = completing.approvers


@click.command("resume")
@click.argument("session", shell_complete=completing.sessions)
@click.option("--accept-charter", default="", metavar="DIGEST", help="Go on under this charter, if it has changed.")
@click.option("--result", metavar="JSON", help="Give the result of the call that waits for a person, signed.")
@click.option(
    "--for", "call", default="", metavar="ID", help="With --result: the request or the call, if several wait."
)
@click.option("--as", "approver", metavar="NAME", help="With --result: as this approver.", shell_complete=_APPROVERS)
@wait_option
@json_option
@click.pass_obj
def command(
    options: GlobalOptions,
    session: str,
    accept_charter: str,
    result: str | None,
    call: str,
    approver: str | None,
    wait: float,
) -> int:
    """Go on with the run of SESSION, which waits for a person or was interrupted.

    What is recorded is not done again: the run gets the recorded answers, and goes on where the record ends. With
    --result, the call that waits is not made: an approver gives its result, which the run gets.
    """
    from deedbook.approvals.results import sign_as
    from deedbook.workspace.workspace import read_workspace

    from .execution import execute, reply_ending
    from .ledgers import own_session

    workspace = read_workspace(options.workspace)
    identity = own_session(workspace, session)

    if result is None and (call or approver):
        raise click.UsageError("--for and --as belong to --result")
    value = None if result is None else read_json(result, "--result", hint="put text in quotation marks")

    def begin(kernel: "Kernel") -> "Session":
        document = kernel.bindings.charter.document
        given = None if result is None else sign_as(document["principals"], value, approver, call)
        return resume_session(kernel, identity, wait, accept_charter, given)

    profile = profile_of(workspace.state, identity)
    return execute(options, begin, lambda opened: reply_ending(opened.go_on()), profile=profile)


def resume_session(
    kernel: "Kernel", identity: str, wait: float = 0.0, accept_charter: str = "", result: "PersonResult | None" = None
) -> "Session":
    """Reopen the session *identity*, whose run is to go on; raises as `Kernel.resume` does.

    *wait* is how many seconds to wait for a person, *result* a person's own result for the call that waits.
    """
    from .progress import ApprovalNotice, show_delta, shows_progress

    shown = show_delta if shows_progress() else None
    session = kernel.resume(identity, accept_charter=accept_charter, wait=wait, result=result, show=shown)
    if wait > 0:
        session.ledger.subscribe(ApprovalNotice(session.id, kernel.site.state))
    return session


def profile_of(state: "Path", identity: str) -> str | None:
    """Return the profile under which the session *identity* of a *state* folder began, if its ledger can be read."""
    from deedbook.format.errors import DeedbookError
    from deedbook.format.reader import read

    with suppress(DeedbookError, OSError, ValueError):
        first = next(iter(read(state / "sessions" / identity)), None)
        profile = first.payload.get("profile") if first else None
        return profile if isinstance(profile, str) else None
    return None
