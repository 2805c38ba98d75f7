"""Parameters of several commands: kinds of plugins, and files."""

from pathlib import Path
from typing import Any, Final

import click

from deedbook.cli.common import EMPTY

KINDS: Final = ("tool", "provider", "flow", "hook", "policy", "skill", "pack", "feature")
"""The kinds of plugins."""


class FilePath(click.Path):
    """A file or a folder, as a `Path`. An empty text is refused; `Path` would take it for the current folder."""

    def __init__(self, *, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; raises `click.BadParameter`."""
        if value == "":
            self.fail(EMPTY, param, ctx)
        return super().convert(value, param, ctx)
