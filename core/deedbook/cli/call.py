"""``deedbook call``: use one ability in a session of its own."""

from typing import TYPE_CHECKING

import click

from . import completing
from .common import (
    GlobalOptions,
    args_option,
    json_option,
    pairs_argument,
    parse_arguments,
    principal_option,
    profile_option,
    wait_option,
)

if TYPE_CHECKING:
    from deedbook.sessions.session import Session

    from .execution import Ending


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
    options: GlobalOptions,
    ability: str,
    pairs: tuple[str, ...],
    text: str | None,
    profile: str | None,
    principal: str | None,
    wait: float,
) -> int:
    """Use ABILITY through the door and print its result as JSON.

    Arguments are words: KEY=TEXT is a string, KEY:=JSON any JSON. Or give all of them as --args JSON.
    """
    from .execution import call_ending, execute, session_starter

    begin, args = session_starter("call", principal, wait), parse_arguments(text, pairs)

    def work(session: "Session") -> "Ending":
        return call_ending(session.call(ability, args), session)

    return execute(options, begin, work, profile=profile, words=pairs)
