"""Show the processes that wrote, their runs and sessions."""

from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, json_option
from deedbook.cli.output import as_json, data_command, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deedbook.format.reader import SessionSummary
    from deedbook.maintenance.processes import Process, Processes, SessionRecord

SECTION: Final = "Record"


@data_command
@click.command("processes")
@json_option
@click.pass_obj
def command(asked: GlobalOptions) -> int:
    """Show the processes that began sessions here, the runs of each, their sessions, and how each process ended."""
    from deedbook.cli.ledgers import read_recorded
    from deedbook.format.files import Folder
    from deedbook.format.reader import list_sessions
    from deedbook.maintenance.processes import Processes, read_processes

    state, found, listed = read_recorded(asked.workspace).state, Processes(), {}
    if state.is_dir():
        with Folder.at(state) as folder:
            found, listed = read_processes(folder), {each.id: each for each in list_sessions(folder)}
    if asked.json:
        as_json(_build_document(found, listed))
    elif found.processes or found.sessions:
        for line in _format_lines(found, listed):
            say(line)
    else:
        say("no processes yet")
    return 0


def _find_unassigned(found: "Processes") -> "list[SessionRecord]":
    """Return the sessions without a run."""
    return [each for each in found.sessions.values() if not each.run]


# --- JSON output ----------------------------------------------------------------------------------------------------


def _build_document(found: "Processes", listed: "Mapping[str, SessionSummary]") -> dict[str, Any]:
    return {
        "schema_version": "v1",
        "system_id": found.system,
        "processes": [_process_as_json(each, found, listed) for each in found.processes.values()],
        "sessions": [_session_as_json(each, listed) for each in _find_unassigned(found)],
    }


def _process_as_json(process: "Process", found: "Processes", listed: "Mapping[str, SessionSummary]") -> dict[str, Any]:
    runs = [
        {"run_id": run, "sessions": [_session_as_json(found.sessions[name], listed) for name in names]}
        for run, names in process.runs.items()
    ]
    document = {
        "process_id": process.id, "kind": process.kind, "pid": process.pid, "kernel": process.kernel,
        "charter": process.charter, "started": process.started, "state": process.state,
    }  # fmt: skip
    end = {"ended": process.ended, "reason": process.reason} if process.ended else {}
    return {**document, **end, **({"recovered": process.recovered} if process.recovered else {}), "runs": runs}


def _session_as_json(session: "SessionRecord", listed: "Mapping[str, SessionSummary]") -> dict[str, Any]:
    seen = listed.get(session.id)
    state, events = (seen.state, seen.events) if seen else ("missing", session.events)
    return {"session_id": session.id, "trace_id": session.trace, "state": state, "events": events}


# --- text output ----------------------------------------------------------------------------------------------------


def _format_lines(found: "Processes", listed: "Mapping[str, SessionSummary]") -> "Iterator[str]":
    from deedbook.format.terminal import plain

    yield plain(f"system {found.system}")
    for process in found.processes.values():
        yield plain(f"  process {process.id}  {process.kind}  {process.started}  {_format_end(process)}")
        yield from (plain(f"    {line}") for line in _format_recovered(process.recovered))
        for run, names in process.runs.items():
            yield plain(f"    run {run}")
            yield from (plain(f"      {_format_session(found.sessions[name], listed)}") for name in names)
    if alone := _find_unassigned(found):
        yield "  no process: older than processes are told, or theirs died while they began"
        yield from (plain(f"    {_format_session(each, listed)}") for each in alone)


def _format_end(process: "Process") -> str:
    if process.state == "running":
        return f"running, pid {process.pid}"
    return f"{process.state} {process.ended} ({process.reason})" if process.ended else process.state


def _format_recovered(found: "Mapping[str, Any]") -> "Iterator[str]":
    """Yield what a process recovered from dead processes; sealed parts are left out."""
    if died := found.get("died"):
        yield f"found dead: {', '.join(each for each in died if isinstance(each, str))}"
    for word, member in (("closed", "closed"), ("left as it is", "refused")):
        for each in found.get(member, ()):
            if isinstance(each, dict) and isinstance(each.get("session_id"), str):
                why = each.get("reason", f"unknown calls: {each.get('unknown')}")
                yield f"{word}: session {each['session_id']}, {why}"
    for name in found.get("removed", ()):
        yield f"removed: session {name}, which never began"


def _format_session(entry: "SessionRecord", listed: "Mapping[str, SessionSummary]") -> str:
    document = _session_as_json(entry, listed)
    count = f"{document['events']} event{'' if document['events'] == 1 else 's'}"
    return f"session {document['session_id']}  {document['state']}  {count}"
