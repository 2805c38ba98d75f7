"""``deedbook call``: one ability, in a session of its own."""

import click

from . import completing
from .common import (
    Asked,
    args_option,
    given_arguments,
    json_option,
    pairs_argument,
    principal_option,
    profile_option,
    wait_option,
)


@click.command("call")
@click.argument("ability", shell_complete=completing.abilities)
@pairs_argument
@args_option
@profile_option
@principal_option
@wait_option
@json_option
@click.pass_obj
def command(
    asked: Asked, ability: str, pairs: tuple[str, ...], text: str | None, profile: str | None, principal: str | None,
    wait: float,
) -> int:  # fmt: skip
    """Use ABILITY through the door and print its result as JSON.

    Arguments are words: KEY=TEXT is a string, KEY:=JSON any JSON. Or give all of them as --args JSON.
    """
    from .acting import act, beginning, given

    begin, args = beginning("call", principal, wait), given_arguments(text, pairs)
    return act(asked, begin, lambda session: given(session.call(ability, args)), profile=profile, words=pairs)
