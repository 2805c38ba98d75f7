"""``deedbook ledger``: commands on ledgers themselves. Each subcommand has a module of its own."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click

from .common import OpenGroup

OWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "amend": "Say a recorded event otherwise, by a further one.",
        "erase": "Delete sealed values; lines and proofs stay.",
        "excise": "Take a payload out of its line: the last resort.",
    }
)
"""The kernel's own subcommands with a line of help each; `NAME` is in ``ledger_NAME.py``."""


class _Parts(OpenGroup):
    """Imports a subcommand's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(name for name in self.external_commands() if name not in OWN), *OWN]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in OWN:
            return super().get_command(ctx, cmd_name)
        command: click.Command = importlib.import_module(f".ledger_{cmd_name}", __package__).command
        return command

    def is_external(self, name: str) -> bool:
        return name not in OWN

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = {name: each.describe().line for name, each in self.external_commands().items()}
        with formatter.section("Commands"):
            formatter.write_dl(list({**lines, **OWN}.items()))


@click.group("ledger", cls=_Parts)
def command() -> None:
    """Sign, import, correct and erase: what is done with ledgers themselves."""
