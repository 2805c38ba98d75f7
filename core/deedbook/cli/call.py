"""``deedbook call``: one ability, in a session of its own."""

import json
import sys

import click

from deedbook import canonical
from deedbook.errors import Err
from deedbook.kernel import open_kernel

from .common import announce, begin, json_option, place_of, principal_option, profile_option, summary
from .output import as_json, message, refused, say


@click.command("call")
@click.argument("ability")
@click.option("--args", "text", default="{}", metavar="JSON", help="The arguments; `-` reads standard input.")
@profile_option
@principal_option
@json_option
@click.pass_obj
def command(
    workspace: str, ability: str, text: str, profile: str | None, principal: str | None, *, as_json_: bool
) -> int:
    """Use ABILITY through the door and print its result as JSON."""
    args = canonical.parse(sys.stdin.buffer.read() if text == "-" else text)
    with open_kernel(workspace, profile=profile) as kernel:
        announce(kernel)
        session = begin(kernel, "call", principal)
        if isinstance(session, int):
            return session
        with session:
            result = session.call(ability, args)
            session.end(ok=not isinstance(result, Err), reason=result.error.code if isinstance(result, Err) else "done")
        if isinstance(result, Err):
            error = {"code": result.error.code, "message": str(result.error)}
            if as_json_:
                as_json(summary(kernel, session, ok=False, error=error))
            status = refused(result.error)
        else:
            status = 0
            if as_json_:
                as_json(summary(kernel, session, ok=True, result=result.value))
            else:
                say(json.dumps(result.value, indent=2))
        if not as_json_:
            message(f"session {session.id}")
            message(f"ledger  {place_of(kernel, session)}")
        return status
