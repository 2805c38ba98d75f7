"""``deedbook ledger``: what is done with ledgers themselves. Each subcommand stands in a module of its own."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click

from .common import Suggesting

PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "checkpoint": "Sign how far all ledgers have come.",
        "import": "Take in an old ledger, as it is.",
        "amend": "Say a recorded event otherwise, by a further one.",
        "erase": "Delete sealed values; lines and proofs stay.",
        "excise": "Take a payload out of its line: the last resort.",
    }
)
"""Every subcommand, and what it does in a sentence; `NAME` stands in ``ledger_NAME.py``."""


class _Parts(Suggesting):
    """Imports a subcommand's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PARTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PARTS:
            return None
        command: click.Command = importlib.import_module(f".ledger_{cmd_name}", __package__).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(PARTS.items()))


@click.group("ledger", cls=_Parts)
def command() -> None:
    """Sign, import, correct and erase: what is done with ledgers themselves."""
