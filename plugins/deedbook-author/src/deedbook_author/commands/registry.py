"""Check what the workspace declares: `registry lint`."""

from pathlib import Path
from typing import Final

import click

from deedbook.cli.common import GlobalOptions, SuggestingGroup, json_option
from deedbook.cli.output import as_json, data_command, message, say

from .parameters import FilePath

SECTION: Final = "Workspace"


@data_command
@click.group("registry", cls=SuggestingGroup)
def command() -> None:
    """Check what the workspace declares."""


@command.command("lint", short_help="Check every ability, or those in FILE.")
@click.argument("files", nargs=-1, type=FilePath(), metavar="[FILE]...")
@json_option
@click.pass_obj
def lint(options: GlobalOptions, files: tuple[Path, ...]) -> int:
    """Check every ability, or those in FILE, and print all errors and notes with file, line and column.

    Plugins are imported for their declarations; nothing is started and nothing is written. With errors the exit status
    is 1; notes alone leave it 0.
    """
    import attrs

    from deedbook.format.release import VERSION
    from deedbook.format.terminal import plain, pluralise
    from deedbook.plugins.plugins import discover
    from deedbook.workspace.sources import find_workspace
    from deedbook_author.registry import survey

    root = find_workspace(Path(options.workspace)).absolute()
    made = survey(root, discover(), kernel=VERSION, files=[_within(root, file) for file in files])
    if options.json:
        as_json(
            {
                "schema_version": "v1",
                "ok": made.ok,
                "abilities": list(made.abilities),
                "findings": [attrs.asdict(each) for each in made.findings],
            }
        )
        return 0 if made.ok else 1
    for each in made.findings:
        code = f" [{each.code}]" if each.code else ""
        say(plain(f"{each.level}: {each.place or 'workspace'}: {each.message}{code}"))
    errors = sum(each.level == "error" for each in made.findings)
    told = f"{pluralise(errors, 'error')}, {pluralise(len(made.findings) - errors, 'note')}"
    looked = f"{len(made.abilities)} {'ability' if len(made.abilities) == 1 else 'abilities'}"
    message(f"{looked} checked: {told}")
    return 0 if made.ok else 1


def _within(root: Path, file: Path) -> str:
    """Return the path of a file relative to the workspace, as in its places."""
    place = Path.cwd() / file
    return str(place.relative_to(root)) if place.is_relative_to(root) else str(file)
