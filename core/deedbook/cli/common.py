"""What several commands share: who was asked for what, options, and how places are shown."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from .output import message

if TYPE_CHECKING:
    from deedbook.locks import Opened


@attrs.define
class Asked:
    """What was asked for before a command runs: the folder to look from, and whether the answer is to be JSON."""

    workspace: str = "."
    json: bool = False


class Suggesting(click.Group):
    """A group that says which of its commands may have been meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; raises `click.UsageError`."""
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            from deedbook.schema import suggest

            raise click.UsageError(f"there is no command {args[0]!r}{suggest(args[0], known)}", ctx)
        return super().resolve_command(ctx, args)


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    asked = ctx.find_object(Asked)
    assert asked is not None
    asked.json = asked.json or value


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember, help="Print JSON with a versioned schema."
)
profile_option = click.option("--profile", metavar="NAME", help="Use this profile instead of the workspace's own.")
principal_option = click.option("--as", "principal", metavar="NAME", help="Act for this declared principal.")


def announce(opened: "Opened") -> None:
    """Say what changed in the charter since it was last in force."""
    if opened.previous is None:
        return
    for way in ("looser", "tighter", "other"):
        for text in getattr(opened.changes, way):
            message(f"charter {'changed' if way == 'other' else way}: {text}")


def shown(place: Path) -> str:
    """Return *place* relative to the present folder if it is below it."""
    with suppress(OSError):  # the present folder may be gone
        here = Path.cwd()
        if place.is_relative_to(here):
            return str(place.relative_to(here))
    return str(place)
