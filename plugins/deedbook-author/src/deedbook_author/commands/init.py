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
@click.option("--pack", "packs", metavar="NAME", multiple=True, help="Use the policies of an installed pack.")
@click.option("--schemas", is_flag=True, help="Only rewrite the JSON Schemas for editors.")
def command(folder: Path, packs: tuple[str, ...], *, full: bool, schemas: bool) -> int:
    """Make FOLDER (default: the current one) a workspace: one file, or with --full the whole starter.

    With --pack the policies come from installed packs, such as baseline. Every YAML file names its JSON Schema, so that
    editors complete and check it.
    """
    from deedbook_author.starter import create_workspace, renew_schemas

    if schemas and (full or packs):
        raise click.UsageError("--schemas writes nothing but schemas; leave --full and --pack out")
    if schemas:
        from deedbook.workspace.sources import find_workspace

        root = find_workspace(folder)
        for path in renew_schemas(root):
            say(display_path(root / path))
        return 0
    for path in create_workspace(folder, full=full, packs=packs):
        say(display_path(folder.absolute() / path))
    there = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    trial = """call echo --args '{"text": "hello"}'"""
    if full:
        trial = 'run "Say hello to Ada"'
    elif packs:
        trial = "call file-read path=server.key"
    message(f"try:  {there}deedbook {trial}")
    return 0
