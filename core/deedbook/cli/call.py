"""``deedbook call``: one ability, in a session of its own."""

import json
from typing import TYPE_CHECKING, Any

import click

from . import completing
from .common import Asked, json_option, principal_option, profile_option, read_arguments
from .output import spelled

if TYPE_CHECKING:
    from deedbook.session import Session

    from .acting import Ending


@click.command("call")
@click.argument("ability", shell_complete=completing.abilities)
@click.option("--args", "text", default="{}", metavar="JSON", help="The arguments; `-` reads standard input.")
@profile_option
@principal_option
@json_option
@click.pass_obj
def command(asked: Asked, ability: str, text: str, profile: str | None, principal: str | None) -> int:
    """Use ABILITY through the door and print its result as JSON."""
    from .acting import act

    args = read_arguments(text)
    return act(asked, "call", lambda session: _call(session, ability, args), profile=profile, principal=principal)


def _call(session: "Session", ability: str, args: Any) -> "Ending":
    from deedbook.errors import Err

    from .acting import FINE, Ending

    result = session.call(ability, args)
    if isinstance(result, Err):
        return Ending.failed(result.error)
    shown = spelled(json.dumps(result.value, ensure_ascii=False, indent=2))
    return Ending(FINE, shown, members={"result": result.value})
