"""Run pipelines of phases; show and check their files."""

from typing import Final

import click

from deedbook.cli.common import SuggestingGroup
from deedbook.cli.output import data_command

from .agent import agent
from .compose import compose
from .context import context
from .files import lint, listing, show
from .metrics import metrics
from .prepare import prepare
from .routing import routing
from .tasks import add, resume, run, status

SECTION: Final = "Workspace"


@data_command
@click.group("swe", cls=SuggestingGroup)
def command() -> None:
    """List, show, check and run pipelines of phases."""


for each in (
    listing, show, lint, context, add, run, status, resume, metrics, routing, prepare, agent, compose,
):  # fmt: skip
    command.add_command(each)
