"""``deedbook mcp``: the Model Context Protocol; what speaks it comes with the plugin, and is looked up when called."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click

from .common import Suggesting

BROUGHT: Final[Mapping[str, str]] = MappingProxyType({"serve": "Show abilities as the tools of an MCP server."})
"""The commands that the plugin brings, and what each does in a sentence."""
PLUGIN: Final = "deedbook-tool-mcp"


class _Commands(Suggesting):
    """Finds the plugin's commands when one of them is called, so that help needs no plugin and is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *BROUGHT]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in BROUGHT:
            return super().get_command(ctx, cmd_name)
        from deedbook.plugins import command

        found: click.Group = command("mcp", PLUGIN)
        return found.get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [(name, command.get_short_help_str(80)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*own, *BROUGHT.items()])


@click.group("mcp", cls=_Commands)
def command() -> None:
    """Speak the Model Context Protocol: with servers, and as one."""
