"""Read the workflow files of a workspace."""

from typing import Final

import click

SECTION: Final = "Workspace"


@click.group("workflow")
def command() -> None:
    """Read cycles, phases, policies, personas and artifacts."""
