"""What this distribution adds to ``deedbook mcp``; each command's module is imported when it is called."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click

PLACES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({"serve": ("serving_command", "command")})
"""Every command: its module here, and its name in there."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click fixes the signature
        return list(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in PLACES:
            return None
        module, name = PLACES[cmd_name]
        command: click.Command = getattr(importlib.import_module(f".{module}", __package__), name)
        return command


@click.group("mcp", cls=_Commands)
def command() -> None:
    """Show abilities as the tools of an MCP server."""
