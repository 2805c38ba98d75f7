"""``deedbook call``: one ability, in a session of its own."""

import click

from . import completing
from .common import Asked, json_option, principal_option, profile_option, read_arguments, wait_option


@click.command("call")
@click.argument("ability", shell_complete=completing.abilities)
@click.option("--args", "text", default="{}", metavar="JSON", help="The arguments; `-` reads standard input.")
@profile_option
@principal_option
@wait_option
@json_option
@click.pass_obj
def command(asked: Asked, ability: str, text: str, profile: str | None, principal: str | None, wait: float) -> int:
    """Use ABILITY through the door and print its result as JSON."""
    from .acting import act, beginning, given

    begin, args = beginning("call", principal, wait), read_arguments(text)
    return act(asked, begin, lambda session: given(session.call(ability, args)), profile=profile)
