"""Show what waits for a person; approve, deny, or run it."""

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, SuggestingGroup, json_option, principal_option
from deedbook.cli.output import as_json, data_command, format_error, is_terminal, message, report_error, say, table

from . import completers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from deedbook.call.queue import ApprovalQueue, ApprovalRequest
    from deedbook.cli.execution import Ending
    from deedbook.contract import Object
    from deedbook.sessions.session import Session

SECTION: Final = "Do"
STALE: Final = "stale"
"""The state of a request that can be neither answered nor performed, because it was made under another charter."""
_CALL_AGAIN: Final = "make the call again"

note_option = click.option("--note", default="", metavar="TEXT", help="Say why; it is signed with the answer.")
yes_option = click.option("--yes", is_flag=True, help="Ask nothing; REQUEST has to be an id.")
approver_option = click.option(
    "--as",
    "principal",
    metavar="NAME",
    help="Answer as this approver, with their key.",
    shell_complete=completing.approvers,
)


@data_command
@click.group("approvals", cls=SuggestingGroup)
def command() -> None:
    """Show what waits for a person; approve, deny, or run it."""


@command.command("list", short_help="List the requests that wait for an answer or for `approvals run`.")
@click.option("--all", "every", is_flag=True, help="Also what is answered, expired, used, withdrawn or stale.")
@json_option
@click.pass_obj
def list_requests(options: GlobalOptions, *, every: bool) -> int:
    """List the requests that wait for an answer, or are approved and not performed yet."""
    from deedbook.call.queue import OPEN
    from deedbook.format.errors import ApprovalError

    rows: list[dict[str, Any]] = []
    try:
        with _queue(options) as waiting:
            states = _states(options, waiting)
            rows = [_row(each, states[each.id]) for each in waiting]
    except ApprovalError:
        rows = []
    left = sum(row["state"] == STALE for row in rows)
    rows = [row for row in rows if every or row["state"] in OPEN]
    if options.json:
        as_json({"schema_version": "v1", "approvals": rows})
    elif rows:
        table(
            (r["approval"], r["state"], f"expires {r['expires']}", r["name"], r["principal"], r["reason"]) for r in rows
        )
    else:
        say("no request waits for a person" if not every else "there are no requests")
    if left and not every:
        message(f"{left} more {'is' if left == 1 else 'are'} stale: the charter has changed since; {_CALL_AGAIN}")
    return 0


@command.command("show", short_help="Show exactly what will happen if REQUEST is approved.")
@click.argument("request", shell_complete=completers.requests)
@json_option
@click.pass_obj
def show(options: GlobalOptions, request: str) -> int:
    """Show exactly what will happen if REQUEST is approved; the signature covers what is shown."""
    with _queue(options) as waiting:
        pending = waiting.find(request)
        document = waiting.request(pending)
        state = _states(options, [pending])[pending.id]
        answer = _answer(pending, waiting)
    if options.json:
        as_json({"schema_version": "v1", "state": state, "request": document, **({"answer": answer} if answer else {})})
        return 0
    for name, text in _lines(document, state, answer):
        say(f"{name:13}{text}")
    return 0


@command.command("approve", short_help="Approve REQUEST: sign what `approvals show` shows of it.")
@click.argument("request", shell_complete=completers.requests)
@approver_option
@note_option
@yes_option
@json_option
@click.pass_obj
def approve(options: GlobalOptions, request: str, principal: str | None, note: str, *, yes: bool) -> int:
    """Approve REQUEST: sign with your private key what `approvals show` shows. The call can be performed once.

    REQUEST is an id or its beginning. For `last`, the command shows the request first and asks you to confirm.
    """
    return _sign_answer(options, _choose(options, request, "Approve", yes=yes), principal, note, approve=True)


@command.command("deny")
@click.argument("request", shell_complete=completers.requests)
@approver_option
@note_option
@yes_option
@json_option
@click.pass_obj
def deny(options: GlobalOptions, request: str, principal: str | None, note: str, *, yes: bool) -> int:
    """Deny REQUEST: sign that it must not be performed.

    For `last`, the command shows the request first and asks you.
    """
    return _sign_answer(options, _choose(options, request, "Deny", yes=yes), principal, note, approve=False)


@command.command("run", short_help="Perform the approved REQUEST once, or go on with its run.")
@click.argument("request", shell_complete=completers.requests)
@principal_option
@json_option
@click.pass_obj
def run(options: GlobalOptions, request: str, principal: str | None) -> int:
    """Perform the approved REQUEST once, for the principal who made it, in a session of its own.

    If a suspended run waits at this call, the run goes on instead, as with `deedbook resume`.
    """
    from deedbook.cli.execution import execute, reply_ending
    from deedbook.cli.resume import resume_session
    from deedbook.policy.callers import LOCAL
    from deedbook_approvals.performing import find_run, start_session

    with _queue(options) as waiting:
        pending = waiting.find(request)
        profile = waiting.request(pending)["profile"]
        if session := find_run(_state(options), pending):
            _refuse_unapproved(pending)
            return execute(
                options,
                lambda kernel: resume_session(kernel, session),
                lambda resumed: reply_ending(resumed.go_on()),
                profile=profile,
            )
        ready: list[Any] = []

        def start(kernel: Any) -> "Session":
            by = LOCAL if principal is None else kernel.principal(principal, via=LOCAL.via)
            ready[:] = start_session(kernel, waiting, pending, by.id)
            return ready[0]  # type: ignore[no-any-return]

        return execute(options, start, lambda session: _resume(session, ready), profile=profile)


def _refuse_unapproved(pending: "ApprovalRequest") -> None:
    """Raise `ApprovalError` unless *pending* is approved and not used."""
    from deedbook.call.queue import refuse_state

    refuse_state(pending, _now(), wanted="approved")


def _resume(session: "Session", ready: list[Any]) -> "Ending":
    from deedbook.cli.execution import call_ending

    _, grant, request = ready
    return call_ending(session.resume(request, grant), session)


def _choose(options: GlobalOptions, request: str, verb: str, *, yes: bool) -> str | None:
    """Return the id of the named request, or of the last one if a person confirms it."""
    from deedbook.call.queue import LAST
    from deedbook.cli.common import confirm

    if request != LAST:
        return request
    if yes or not is_terminal(sys.stdin):
        raise click.UsageError(
            "`last` needs a terminal, which shows the request first; name it by its id: deedbook approvals list"
        )
    with _queue(options) as waiting:
        pending = waiting.find(request)
        for name, text in _lines(
            waiting.request(pending), _states(options, [pending])[pending.id], _answer(pending, waiting)
        ):
            message(f"{name:13}{text}")
    return str(pending.id) if confirm(f"{verb} this?", yes=False) else None


def _sign_answer(options: GlobalOptions, request: str | None, approver: str | None, note: str, *, approve: bool) -> int:
    from deedbook.maintenance.extending import notify_extended
    from deedbook.maintenance.opening import OWN
    from deedbook.workspace.workspace import read_workspace
    from deedbook_approvals.answering import answer

    if request is None:
        message("nothing was signed")
        return 1
    pending = answer(options.workspace, request, approve=approve, approver=approver, note=note)
    notify_extended(read_workspace(options.workspace), OWN, lambda why: report_error(format_error(why)))
    word = "approved" if approve else "denied"
    if options.json:
        as_json({"schema_version": "v1", "approval": pending.id, "answer": "approve" if approve else "deny"})
    else:
        message(f"{word} {pending.id}")
        if run := _waiting_run(options, pending):
            message(f"A suspended run waits at this call; go on with: deedbook resume {run}")
        elif approve:
            message(f"The waiting process continues. If no process is waiting{_next_step(options, pending)}")
    return 0


def _waiting_run(options: GlobalOptions, pending: "ApprovalRequest") -> str:
    from deedbook_approvals.performing import find_run

    return find_run(_state(options), pending)


def _next_step(options: GlobalOptions, pending: "ApprovalRequest") -> str:
    """Return how to perform an approved call if no process is waiting; only the agent can use an agent's own tool."""
    from deedbook.policy.bound import EXTERNAL
    from deedbook.workspace.workspace import read_workspace
    from deedbook_approvals.performing import AGAIN

    with _queue(options) as waiting:
        source = read_workspace(options.workspace).abilities.get(waiting.request(pending)["name"])
    own = source is not None and source.handler == {"tool": EXTERNAL}
    return f", {AGAIN}" if own else f": deedbook approvals run {pending.id}"


def _queue(options: GlobalOptions) -> Any:
    from deedbook.call.queue import open_queue

    return open_queue(_state(options))


def _state(options: GlobalOptions) -> "Path":
    from deedbook.cli.ledgers import read_recorded

    return read_recorded(options.workspace).state


def _now() -> str:
    from deedbook.format.events import timestamp

    return timestamp(time.time())


def _states(options: GlobalOptions, requests: "Iterable[ApprovalRequest]") -> dict[str, str]:
    """Return the state of each of *requests*, by its id; an open request of an older charter is stale."""
    from deedbook.call.queue import OPEN
    from deedbook_approvals.answering import find_stale

    now, every = _now(), list(requests)
    states: dict[str, str] = {each.id: each.state(now) for each in every}
    left = find_stale(options.workspace, [each for each in every if states[each.id] in OPEN])
    return states | dict.fromkeys(left, STALE)


# --- texts ------------------------------------------------------------------------------------------------------------


def _row(pending: "ApprovalRequest", state: str) -> dict[str, Any]:
    from deedbook.format.event_text import show

    asked = pending.requested.payload
    said = {name: show(asked[name]) for name in ("name", "reason", "session", "requested", "expires")}
    principal = asked["principal"]
    who = show(principal["id"]) if isinstance(principal, dict) and "id" in principal else show(principal)
    return {"approval": pending.id, "state": state, "principal": who, **said}


def _answer(pending: "ApprovalRequest", waiting: "ApprovalQueue") -> dict[str, Any] | None:
    from deedbook.policy.requests import read_statement

    if pending.answer is None:
        return None
    said = waiting.open_payload(pending.answer)
    statement = read_statement(said["signed"])
    return {"answer": said["answer"], "approver": said["approver"], "at": statement["at"], "note": statement["note"]}


def _limit_members(limits: "Object") -> "Iterator[tuple[str, Sequence[str]]]":
    """Yield the limits of a branch that are no `None`, with their globs."""
    for name in ("abilities", "forbidden", "reads", "writes"):
        if limits[name] is not None and (limits[name] or name != "forbidden"):
            yield name, limits[name]


def _lines(request: "Object", state: str, answer: "Object | None") -> "Iterator[tuple[str, str]]":
    """Yield everything that a person has to know as named texts that are safe to print."""
    from deedbook.format.terminal import plain

    def of(name: str) -> str:
        return plain(str(request[name]))

    who, by = request["principal"], request.get("by", {})
    yield "request", of("approval")
    yield "state", f"{state}: the charter has changed since; {_CALL_AGAIN}" if state == STALE else state
    yield "will call", f"{of('kind')} {of('name')}"
    yield from (("with" if not n else "", line) for n, line in enumerate(_argument_lines(request["args"])))
    yield "effects", of("effects") + (f", tagged {plain(', '.join(request['tags']))}" if request["tags"] else "")
    behalf = f" on behalf of {who['on_behalf_of']}" if who["on_behalf_of"] else ""
    yield "asked by", plain(f"{who['id']}{behalf}, via {who['via']}{_roles(who)}")
    yield from ((name, of(name)) for name in ("role", "skill") if request[name])
    yield "scope", plain(request["scope"]["why"])
    for limits in request.get("limits", ()):
        members = (f"{name} {', '.join(found) or 'nothing'}" for name, found in _limit_members(limits))
        yield "limits", plain(f"{limits['branch']}: {'; '.join(members)}")
    yield "because", of("reason")
    if by:
        yield "decided by", plain(", ".join(f"{key} {value}" for key, value in by.items()))
    for name in ("session", "charter", "profile", "call", "requested", "expires", "shown"):
        yield name, of(name)
    if answer:
        note = f": {answer['note']}" if answer["note"] else ""
        yield "answered", plain(f"{answer['answer']} by {answer['approver']} at {answer['at']}{note}")


def _roles(who: "Object") -> str:
    return f", roles {', '.join(who['roles'])}" if who["roles"] else ""


def _argument_lines(args: Any) -> "Iterator[str]":
    import json

    from deedbook.cli.output import escape_json

    yield from escape_json(json.dumps(args, ensure_ascii=False, indent=2)).split("\n")
