"""Begin a workspace: one file, or the whole starter."""

from pathlib import Path
from typing import Final

import click

from deedbook.cli.common import display_path
from deedbook.cli.output import data_command, message, say

from .parameters import FilePath

SECTION: Final = "Begin"


@data_command
@click.command("init")
@click.argument("folder", default=".", type=FilePath(file_okay=False))
@click.option("--full", is_flag=True, help="The whole starter: roles, skills, hooks, tools, a policy and its tests.")
@click.option("--schemas", is_flag=True, help="Only rewrite the JSON Schemas for editors.")
def command(folder: Path, *, full: bool, schemas: bool) -> int:
    """Make FOLDER (default: the current one) a workspace: one file, or with --full the whole starter.

    Every YAML file names its JSON Schema, so that editors complete and check it.
    """
    from deedbook_author.starter import create_workspace, renew_schemas

    if schemas and full:
        raise click.UsageError("--schemas writes nothing but schemas; leave --full out")
    if schemas:
        from deedbook.workspace.sources import find_workspace

        root = find_workspace(folder)
        for path in renew_schemas(root):
            say(display_path(root / path))
        return 0
    for path in create_workspace(folder, full=full):
        say(display_path(folder.absolute() / path))
    there = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    trial = 'run "Say hello to Ada"' if full else """call echo --args '{"text": "hello"}'"""
    message(f"try:  {there}deedbook {trial}")
    return 0
