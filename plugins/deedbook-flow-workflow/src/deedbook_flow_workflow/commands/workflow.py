"""Run cycles in Markdown; show and check their files."""

from typing import Final

import click

from deedbook.cli.common import SuggestingGroup
from deedbook.cli.output import data_command

from .files import lint, listing, show
from .runs import resume, run, status

SECTION: Final = "Workspace"


@data_command
@click.group("workflow", cls=SuggestingGroup)
def command() -> None:
    """List, show, check and run workflows."""


for each in (listing, show, lint, run, status, resume):
    command.add_command(each)
