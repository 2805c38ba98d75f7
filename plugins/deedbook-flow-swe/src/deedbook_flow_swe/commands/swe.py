"""The group `deedbook swe`."""

from typing import Final

import click

from deedbook.cli.common import SuggestingGroup
from deedbook.cli.output import data_command

SECTION: Final = "Workspace"


@data_command
@click.group("swe", cls=SuggestingGroup)
def command() -> None:
    """List, show, check and run pipelines of phases."""
