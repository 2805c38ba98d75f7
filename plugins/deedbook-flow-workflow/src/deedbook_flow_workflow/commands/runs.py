"""Run cycles, go on with those that wait, and tell how they stand: run, resume, status."""

from typing import TYPE_CHECKING, Any

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, json_option, principal_option, profile_option, wait_option
from deedbook.cli.output import as_json, say, table
from deedbook.contract import MODES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deedbook.cli.execution import Ending
    from deedbook.format.files import Folder
    from deedbook.kernel import Kernel
    from deedbook.sessions.session import Session


@click.command("run", short_help="Run a cycle.")
@click.argument("cycle", metavar="CYCLE")
@click.argument("request", metavar="REQUEST")
@profile_option
@principal_option
@click.option("--mode", type=click.Choice(MODES), default="interactive", help="The mode of the session.")
@wait_option
@json_option
@click.pass_obj
def run(
    options: GlobalOptions,
    cycle: str,
    request: str,
    profile: str | None,
    principal: str | None,
    mode: str,
    wait: float,
) -> int:
    """Take REQUEST through the phases of CYCLE; on a terminal, each phase and each persona is shown as it goes on.

    A cycle that waits for a person, or is interrupted, is suspended; `deedbook workflow resume SESSION` goes on.
    """
    from deedbook.cli.execution import execute, reply_ending, session_starter
    from deedbook_flow_workflow.definition import PREFIX

    if not request.strip():
        raise click.UsageError("the request is empty")

    def work(session: "Session") -> "Ending":
        _check_cycle(session, cycle)
        return reply_ending(session.run(request, f"{PREFIX}{cycle}"))

    return execute(options, session_starter("run", principal, wait, mode), _with_progress(work), profile=profile)


@click.command("resume", short_help="Go on with a cycle that was suspended.")
@click.argument("session", shell_complete=completing.sessions)
@click.option("--accept-charter", default="", metavar="DIGEST", help="Go on under this charter, if it has changed.")
@wait_option
@json_option
@click.pass_obj
def resume(options: GlobalOptions, session: str, accept_charter: str, wait: float) -> int:
    """Go on with the cycle of SESSION at the phase where it stood; nothing that is recorded is done again."""
    from deedbook.cli.execution import execute, reply_ending
    from deedbook.cli.ledgers import own_session
    from deedbook.cli.resume import profile_of, resume_session
    from deedbook.workspace.workspace import read_workspace

    workspace = read_workspace(options.workspace)
    identity = own_session(workspace, session)

    def begin(kernel: "Kernel") -> "Session":
        return resume_session(kernel, identity, wait, accept_charter, None)

    profile = profile_of(workspace.state, identity)
    return execute(options, begin, _with_progress(lambda opened: reply_ending(opened.go_on())), profile=profile)


@click.command("status", short_help="Show how the cycles of a session stand.")
@click.argument("session", shell_complete=completing.sessions)
@json_option
@click.pass_obj
def status(options: GlobalOptions, session: str) -> int:
    """Show the cycles of SESSION: verdict, phases, the personas of each run of a phase, and what it came to."""
    from deedbook.cli.ledgers import ledger_path, own_session, read_leniently
    from deedbook.format.files import Folder
    from deedbook.format.folds import fold
    from deedbook.format.reader import read
    from deedbook_inspect.ledger_contexts import read_contexts
    from deedbook_inspect.replaying.cycles import CycleFold

    source, _ = read_leniently(options.workspace)
    place = ledger_path(source, own_session(source, session))
    contexts, _ = read_contexts(place)
    with Folder.at(place.parent) as folder:
        cycles = [_describe(each.as_json(), contexts, folder) for each in fold(CycleFold(), read(place))]
    if options.json:
        as_json({"schema_version": "v1", "cycles": cycles})
    elif not cycles:
        say("this session ran no cycle")
    for cycle in () if options.json else cycles:
        _print(cycle)
    return 0


def _with_progress(work: "Callable[[Session], Ending]") -> "Callable[[Session], Ending]":
    """Return *work*, which is shown on a terminal while it goes on."""
    from deedbook.cli.output import message
    from deedbook.cli.progress import shows_progress
    from deedbook.format.terminal import plain
    from deedbook_flow_workflow.progress import CycleProgress

    def show_session(session: "Session") -> "Ending":
        if shows_progress():
            session.ledger.subscribe(CycleProgress(lambda line: message(plain(line))))
        return work(session)

    return show_session


def _check_cycle(session: "Session", cycle: str) -> None:
    """Raise `BindingError` for a cycle that the workspace does not have."""
    from deedbook.format.errors import BindingError, fault
    from deedbook.format.schema import suggest
    from deedbook_flow_workflow.definition import PREFIX

    known = sorted(name.removeprefix(PREFIX) for name in session.bindings.abilities if name.startswith(PREFIX))
    if cycle not in known:
        names = ", ".join(known) or "none; add one in .system/workflows/cycles/"
        raise BindingError(fault("USAGE", f"there is no cycle {cycle!r}{suggest(cycle, known)}; cycles: {names}"))


def _describe(cycle: dict[str, Any], contexts: "Mapping[str, Any]", folder: "Folder") -> dict[str, Any]:
    """Return the row of a cycle, with the runs of its phases, which its context has."""
    from deedbook_flow_workflow.definition import NOTE

    context = contexts.get(cycle["run"])
    notes = [_open(folder, each.data) for each in context.log if each.event_type == NOTE] if context else []
    runs = [_describe_run(note, _open(folder, note["aggregate"])) for note in notes if note and "aggregate" in note]
    return {**cycle, "state": context.state if context else None, "runs": [each for each in runs if each]}


def _describe_run(note: dict[str, Any], aggregate: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the row of one run of a phase; ``None`` if its aggregate was erased."""
    from deedbook.format.event_text import show

    if aggregate is None:
        return None
    return {
        "phase": show(note["phase"]),
        "generation": note["generation"],
        "personas": [{**each, "reason": show(each["reason"])} for each in note["personas"]],
        "path": show(note["path"]),
        "blocked": show(note["blocked"]),
        "verdict": aggregate["verdict"],
        "findings": len(aggregate["findings"]),
    }


def _open(folder: "Folder", value: dict[str, Any]) -> dict[str, Any] | None:
    """Return an object that may be sealed for its size; ``None`` if it was erased."""
    from deedbook.format.sealed import is_sealed, open_value

    if not is_sealed(value):
        return value
    try:
        found: Any = open_value(folder, value)
    except FileNotFoundError:
        return None
    return found if isinstance(found, dict) else None


def _print(cycle: dict[str, Any]) -> None:
    from deedbook.format.event_text import show
    from deedbook.format.terminal import plain

    verdict = show(cycle["verdict"] or f"open, {cycle['state']}")
    visited = " → ".join(map(show, cycle["visited"]))
    where = f"in {show(cycle['phase'])}, through {visited}" if cycle["visited"] else "before its first phase"
    say(plain(f"{show(cycle['cycle'])}  {verdict}  {where}"))
    if cycle["reason"]:
        say(plain(f"  reason: {show(cycle['reason'])}"))
    table(
        (
            f"  {each['phase']}",
            f"run {each['generation']}",
            each["verdict"],
            f"{each['findings']} findings",
            ", ".join(f"{row['persona']}: {row['state']}" for row in each["personas"]),
            each["blocked"] or each["path"] or "",
        )
        for each in cycle["runs"]
    )
    rows = (row for each in cycle["runs"] for row in each["personas"] if row["reason"])
    for line in dict.fromkeys(f"  {row['persona']}: {row['reason']}" for row in rows):
        say(plain(line))
