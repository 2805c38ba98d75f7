"""``deedbook new``: begin something of your own."""

from pathlib import Path

import click

from .common import KINDS, FilePath, Suggesting, shown
from .output import message, say


@click.group("new", cls=Suggesting)
def command() -> None:
    """Begin something of your own: a plugin."""


@command.command("plugin", short_help="Write a plugin that works, with a test and an example workspace.")
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="What it is.")
@click.option(
    "--into",
    default=".",
    metavar="DIR",
    type=FilePath(file_okay=False),
    help="Where its folder is made; default: here.",
)
def plugin(name: str, kind: str, into: Path) -> int:
    """Write a plugin that works: a distribution with a test, and a workspace that uses it.

    NAME is what YAML calls it, in lower-case words joined by hyphens. Nothing that is there already is changed.
    """
    from .drafts import begin

    draft = begin(kind, name, into)
    for path in draft.files:
        say(shown(draft.folder.absolute() / path))
    message("next:")
    for line in draft.commands:
        message(f"  {line}")
    return 0
