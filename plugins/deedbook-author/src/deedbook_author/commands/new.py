"""Begin a plugin of your own: `new plugin`."""

from pathlib import Path
from typing import Final

import click

from deedbook.cli.common import SuggestingGroup, display_path
from deedbook.cli.output import data_command, message, say

from .parameters import KINDS, FilePath

SECTION: Final = "Begin"


@data_command
@click.group("new", cls=SuggestingGroup)
def command() -> None:
    """Create something of your own: a plugin."""


@command.command("plugin", short_help="Write a plugin that works, with a test and an example workspace.")
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="What it is.")
@click.option(
    "--into",
    default=".",
    metavar="DIR",
    type=FilePath(file_okay=False),
    help="The parent folder; default: the current one.",
)
def plugin(name: str, kind: str, into: Path) -> int:
    """Write a working plugin: a distribution with a test, and a workspace that uses it.

    NAME is its name in YAML, in lower-case words joined by hyphens. Existing files are not changed.
    """
    from deedbook_author.drafts import create_plugin

    draft = create_plugin(kind, name, into)
    for path in draft.files:
        say(display_path(draft.folder.absolute() / path))
    message("next:")
    for line in draft.commands:
        message(f"  {line}")
    return 0
