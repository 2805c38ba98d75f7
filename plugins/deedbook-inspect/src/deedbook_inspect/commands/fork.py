"""Go on from a point in a session's past, without doing it again."""

from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, json_option, principal_option, profile_option, wait_option
from deedbook.cli.output import data_command

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.cli.execution import Ending
    from deedbook.continuation.parent import ParentSession
    from deedbook.contract import Json
    from deedbook.format.errors import Result
    from deedbook.kernel import Kernel
    from deedbook.sessions.prompts import Reply
    from deedbook.sessions.session import Session
    from deedbook_inspect.forking.fork import Fork

SECTION: Final = "Do"

ENDED = "FORK_ENDED"


@data_command
@click.command("fork")
@click.argument("session", shell_complete=completing.sessions)
@click.option("--at", type=click.IntRange(0), required=True, metavar="SEQ", help="The last event of the past.")
@click.option("--run", "goes_on", is_flag=True, help="Go on after it: handlers run for real from there.")
@click.option("--prompt", "prompts", multiple=True, metavar="TEXT", help="Run this after it instead; may be repeated.")
@click.option(
    "--on-miss", type=click.Choice(["stop", "run"]), default="stop", show_default=True,
    help="Where a call differs from the past: do nothing more, or run handlers for real.",
)  # fmt: skip
@profile_option
@principal_option
@wait_option
@json_option
@click.pass_obj
def command(  # noqa: PLR0913 - one for each option
    asked: GlobalOptions, session: str, at: int, goes_on: bool, prompts: tuple[str, ...], on_miss: str,
    profile: str | None, principal: str | None, wait: float,
) -> int:  # fmt: skip
    """Begin a session that continues from event SEQ of SESSION (an id, or a file), whose file is only read.

    The work is requested again, through the door and under the current charter. Up to SEQ, a call that equals the
    recorded one gets the recorded outcome, and its handler does not run. Without --run or --prompt nothing more is
    done.
    """
    from deedbook.cli.execution import execute
    from deedbook.continuation.parent import read_parent
    from deedbook_audit.commands.ledgers import session_file
    from deedbook_audit.upcasting.naming import split_source

    parent = read_parent(_require_session(split_source(session_file(asked.workspace, session))[0]))
    forks: list[Fork] = []

    def begin(kernel: "Kernel") -> "Session":
        from deedbook_inspect.forking.fork import plan_fork

        fork = plan_fork(kernel, parent, at, goes_on=goes_on, leaves=on_miss == "run", prompts=prompts)
        forks.append(fork)
        return _begin(kernel, parent, fork, principal, wait)

    recorded_profile = parent.events[0].payload.get("profile")
    if profile is None and isinstance(recorded_profile, str):
        profile = recorded_profile
    return execute(asked, begin, lambda session: _redo(session, forks[0]), profile=profile)


def _require_session(place: "Path") -> "Path":
    """Return *place*; raises `LedgerError` (``FORK_REFUSED``) for a workspace's own ledger."""
    from deedbook.format.errors import LedgerError, fault
    from deedbook_audit.commands.ledgers import is_own_ledger

    if is_own_ledger(place):
        why = "the workspace ledger is not forked, since it holds no session's work; `deedbook sessions` lists sessions"
        raise LedgerError(fault("FORK_REFUSED", why))
    return place


def _begin(kernel: "Kernel", parent: "ParentSession", fork: "Fork", principal: str | None, wait: float) -> "Session":
    """Begin the new session, for the parent's principal unless *principal* names another."""
    from deedbook.policy.callers import LOCAL

    start = parent.events[0].payload
    who: Any = start.get("principal")
    name = who.get("id") if principal is None and isinstance(who, dict) else principal
    if not isinstance(name, str):
        raise click.UsageError("the ledger does not say for whom the session was; name a principal with --as")
    acts = LOCAL if principal is None and name == LOCAL.id else kernel.principal(name, via=LOCAL.via)
    return kernel.session(str(start.get("purpose")), principal=acts, wait=wait, origin=fork.origin)


def _redo(session: "Session", fork: "Fork") -> "Ending":
    """Do the work again, and return how it ended."""
    import attrs

    from deedbook_inspect.forking.fork import redo_work

    result = redo_work(session, fork)
    recall = fork.recall
    served = {"parent": recall.past.parent.session, "at": recall.past.at, "served": recall.served}
    differs = [{"path": each.path, "recorded": each.before, "now": each.now} for each in recall.found]
    ending = _describe_end(result, recall.state == "ended")
    more = {"diverged": {"why": recall.why.message, "differences": differs}} if recall.why else {}
    _print_served(recall.served, recall.past.at, ended=recall.state == "ended" and recall.refused > 0)
    return attrs.evolve(ending, members={**ending.members, "fork": {**served, **more}})


def _describe_end(result: "Result[Json | Reply]", stopped: bool) -> "Ending":
    """Return how the work ended; reaching the end of the recorded past is no failure."""
    from deedbook.cli.execution import Ending, call_ending
    from deedbook.format.errors import Err, Ok
    from deedbook.sessions.prompts import Reply

    if stopped and isinstance(result, Err) and result.error.code == ENDED:
        return Ending(ENDED)
    if isinstance(result, Err):
        return Ending.failed(result.error)
    reply = result.value
    if isinstance(reply, Reply):
        return Ending(reply.state, reply.text, members={"reply": reply.text})
    return call_ending(Ok(reply))


def _print_served(served: int, at: int, *, ended: bool) -> None:
    from deedbook.cli.output import message

    rest = "; nothing was done after it (--run goes on from there)" if ended else ""
    message(f"served {served} recorded outcome{'' if served == 1 else 's'} up to event {at}{rest}")
