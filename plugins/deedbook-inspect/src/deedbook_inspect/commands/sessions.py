"""List the sessions; `sessions close` ends an interrupted one."""

from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, SuggestingGroup, json_option
from deedbook.cli.output import as_json, data_command, message, say, table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deedbook.format.errors import DomainError, LedgerError
    from deedbook.format.files import Folder
    from deedbook.format.reader import SessionSummary

SECTION: Final = "Record"
SHOWN: Final = 8
"""How many digits of a hash are shown."""
_WAITING: Final = frozenset({"waits", "approval"})
"""The members of suspended sessions only."""


@data_command
@click.group("sessions", cls=SuggestingGroup, invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context) -> int:
    """List the sessions: open (being written), ended, interrupted, suspended, empty (never began), or damaged.

    A suspended session waits until `deedbook resume` goes on with its run; the list says what it waits for.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    import attrs

    from deedbook.cli.ledgers import read_leniently
    from deedbook.format.files import Folder
    from deedbook.format.reader import list_sessions

    source, notes = read_leniently(ctx.obj.workspace)
    for note in notes:
        message(note)
    state = source.state
    found: list[tuple[SessionSummary, Mapping[str, Any]]] = []
    if state.is_dir():
        with Folder.at(state) as folder:
            own, runs = list_sessions(folder), _runs(folder)
            waits = {each.id: _waits(state, each) for each in own if each.state == "suspended"}
            found = [(each, {"name": each.id, **runs.get(each.id, {}), **waits.get(each.id, {})}) for each in own]
            found += _imported_sessions(state, [each.id for each in own])
            found.sort(key=lambda pair: pair[0].started)
    if ctx.obj.json:
        told = [{**attrs.asdict(each), **more} for each, more in found]
        as_json({"schema_version": "v1", "sessions": [_row(each) for each in told]})
    elif found:
        table((m["name"], each.state, each.started, _count(each.events), _about(each, m)) for each, m in found)
    else:
        say("no sessions yet")
    return 0


def _waits(state: "Path", session: "SessionSummary") -> "Mapping[str, Any]":
    """Return the requests at which a suspended session waits, if there are several, and a text that names them."""
    from deedbook.continuation.resume import unanswered_requests
    from deedbook.format.errors import DeedbookError
    from deedbook.format.event_text import show

    try:
        asked = unanswered_requests(state, session.id)
    except (DeedbookError, OSError):  # the list says what the last line says
        return {}
    if len(asked) < 2:
        return {}
    names = ", ".join(f"{show(each.payload['name'])} (approval {show(each.payload['approval'])})" for each in asked)
    identities = [each.payload["approval"] for each in asked]
    return {"waits": f"{len(asked)} calls wait for a person: {names}", "approvals": identities}


def _runs(state: "Folder") -> "Mapping[str, Mapping[str, str]]":
    """Return the process and the run of each session, as far as the workspace ledger records them."""
    from deedbook.format.errors import DeedbookError
    from deedbook.maintenance.processes import read_processes

    try:
        told = read_processes(state).sessions.values()
    except (DeedbookError, OSError):  # its own verification says what is wrong with it
        return {}
    return {each.id: {"process": each.process, "run": each.run} for each in told if each.run}


def _imported_sessions(state: "Path", own: list[str]) -> "list[tuple[SessionSummary, Mapping[str, str]]]":
    """Return the sessions of imported old ledgers, each with its form, the file's hash and a name.

    If several sessions have the same id, the names of imported ones begin with the hash.
    """
    from collections import Counter

    from deedbook.format.errors import DeedbookError
    from deedbook.maintenance.imports import list_imports

    try:
        known = list_imports(state)
    except (DeedbookError, OSError):  # its own verification says what is wrong with it
        return []
    ids = Counter([*own, *(each.id for one in known for each in one.sessions)])
    found: list[tuple[SessionSummary, Mapping[str, str]]] = []
    for one in known:
        for each in one.sessions:
            name = each.id if ids[each.id] == 1 else f"{one.sha256[:SHOWN]}#{each.id}"
            more = {"name": name, "format": one.format, "imported": one.sha256, "verdict": one.verdict}
            found.append((each, more))
    return found


def _row(told: "Mapping[str, object]") -> "Mapping[str, object]":
    return {name: value for name, value in told.items() if name != "torn" and (value or name not in _WAITING)}


def _about(session: "SessionSummary", belongs: "Mapping[str, Any]") -> str:
    """Return what a suspended session waits for, otherwise whose a session is."""
    return str(belongs.get("waits", session.waits)) or _whose(belongs)


def _whose(belongs: "Mapping[str, str]") -> str:
    if "imported" in belongs:
        verdict = {"sound": "", "unhashed": ", without hashes"}.get(belongs["verdict"], ", unsound as taken in")
        return f"imported {belongs['imported'][:SHOWN]}, {belongs['format']}{verdict}"
    return f"process {belongs['process'][:8]} run {belongs['run'][:8]}" if "run" in belongs else ""


def _count(events: int) -> str:
    return "1 event" if events == 1 else f"{events} events"


def _report_checkpoint(error: "DomainError") -> None:
    message(f"checkpoint: {error} [{error.code}]")


@command.command("close", short_help="End an interrupted SESSION, or give up a suspended one.")
@click.argument("session", shell_complete=completing.sessions)
@click.pass_obj
def close(options: GlobalOptions, session: str) -> int:
    """End an interrupted SESSION: its open calls become unknown, and session.end is written.

    A run that could be resumed is given up: it is halted, and its request for a person's answer is withdrawn.
    A session that never began is removed; its partial first write is kept. Bytes after the end of an ended session are
    set aside. An imported session never changes.
    """
    from deedbook.cli.ledgers import own_session
    from deedbook.format.errors import LedgerError
    from deedbook.maintenance.closing import describe_unknown
    from deedbook.workspace.workspace import read_workspace
    from deedbook_inspect.upkeep import close_session, discard_session, mend_session

    source = read_workspace(options.workspace)
    identity = own_session(source, session)
    if removed := discard_session(source, identity):
        message(str(removed))
        return 0
    if torn := mend_session(source, identity, _report_checkpoint):
        message(f"session {identity} had ended; {torn} bytes after its last line are set aside")
        return 0
    try:
        closed = close_session(source, identity, _report_checkpoint)
    except LedgerError as problem:
        raise _with_interrupted(problem, identity, source.state) from None
    message(f"session {identity} is closed; {describe_unknown(closed)}")
    return 0


def _with_interrupted(problem: "LedgerError", session: str, state: "Path") -> "LedgerError":
    """Return *problem*; for an ended session, also name the interrupted sessions, one of which was probably meant."""
    from deedbook.format.errors import LedgerError, fault
    from deedbook.format.files import Folder
    from deedbook.format.reader import list_interrupted
    from deedbook.format.terminal import few

    if problem.error.code != "SESSION_ENDED":
        return problem
    with Folder.at(state) as folder:
        left = ", ".join(few(list_interrupted(folder)))
    others = f"these sessions are interrupted: {left}" if left else "no session is interrupted"
    return LedgerError(fault("SESSION_ENDED", f"session {session} has ended already, so nothing is closed; {others}"))
