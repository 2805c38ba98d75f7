"""``deedbook init``: create a workspace."""

from pathlib import Path

import click

from .common import FilePath, display_path
from .output import message, say


@click.command("init")
@click.argument("folder", default=".", type=FilePath(file_okay=False))
@click.option("--full", is_flag=True, help="The whole starter: roles, skills, hooks, tools, a policy and its tests.")
@click.option("--schemas", is_flag=True, help="Only rewrite the JSON Schemas for editors.")
def command(folder: Path, *, full: bool, schemas: bool) -> int:
    """Make FOLDER (default: the current one) a workspace: one file, or with --full the whole starter.

    Every YAML file names its JSON Schema, so that editors complete and check it.
    """
    from .starter import create_workspace, renew_schemas

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
