"""The group `deedbook workflow`."""

from typing import Final

import click

from deedbook.cli.common import SuggestingGroup
from deedbook.cli.output import data_command

from .files import lint, listing, show

SECTION: Final = "Workspace"


@data_command
@click.group("workflow", cls=SuggestingGroup)
def command() -> None:
    """List, show and check workflows."""


for each in (listing, show, lint):
    command.add_command(each)
