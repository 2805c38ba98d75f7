"""``deedbook run``: one request, from the prompt to the answer."""

import sys
from contextlib import suppress

import click

from deedbook.contracts import Event
from deedbook.errors import Err, Result
from deedbook.kernel import Kernel, open_kernel
from deedbook.session import Reply, Session
from deedbook.terminal import plain

from .common import announce, begin, json_option, place_of, principal_option, profile_option, summary
from .output import as_json, message, refused, say

_STATUS = {"COMPLETED": 0, "NEEDS_HUMAN": 3}
_STEPS = {"agent.transition": "to", "tool.call": "tool_name", "tool.denied": "name", "skill.invoke": "skill"}


@click.command("run")
@click.argument("prompt")
@profile_option
@principal_option
@json_option
@click.pass_obj
def command(workspace: str, prompt: str, profile: str | None, principal: str | None, *, as_json_: bool) -> int:
    """Take a request through hooks, skill and roles to an answer; PROMPT may be `-` for standard input."""
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise click.UsageError("the prompt is empty")
    with open_kernel(workspace, profile=profile) as kernel:
        announce(kernel)
        session = begin(kernel, "run", principal)
        if isinstance(session, int):
            return session
        if sys.stderr.isatty():
            session.ledger.subscribe(_progress)
        with session:
            result = session.run(text)
            state = result.error.code if isinstance(result, Err) else result.value.state
            session.end(ok=state == "COMPLETED", reason=state)
        return _report(kernel, session, result, json=as_json_)


def _report(kernel: Kernel, session: Session, result: Result[Reply], *, json: bool) -> int:
    if isinstance(result, Err):
        error = {"code": result.error.code, "message": str(result.error)}
        if json:
            as_json(summary(kernel, session, ok=False, error=error))
        status = refused(result.error)
    else:
        reply = result.value
        status = _STATUS.get(reply.state, 1)
        if json:
            as_json(summary(kernel, session, ok=status == 0, reply=reply.text, state=reply.state))
        else:
            for line in reply.text.split("\n"):
                say(plain(line))
        if status:
            message(f"the run ended {reply.state}")
    if not json:
        message(f"session {session.id}")
        message(f"ledger  {place_of(kernel, session)}")
    return status


def _progress(event: Event) -> None:
    """Show where the run is; only on a terminal."""
    member = _STEPS.get(event.type)
    if member:
        with suppress(OSError):  # nobody may be looking any more; the ledger goes on
            message(f"· {event.type} {event.payload.get(member, '')}")
