"""``deedbook otel``: spans for OpenTelemetry; what makes them comes with the plugin, and is looked up when called."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click

from .common import Suggesting
from .reading import Ledgers

BROUGHT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "export": "Send the spans of sessions to a collector.",
        "follow": "Send spans as sessions are written, and go on where it ended.",
    }
)
"""The commands that the plugin brings, and what each does in a sentence."""
PLUGIN: Final = "deedbook-sink-otel"


class _Commands(Suggesting):
    """Finds the plugin's commands when one of them is called, so that help needs no plugin and is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(BROUGHT)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in BROUGHT:
            return None
        from deedbook.plugins import command as found

        group: click.Group = found("otel", PLUGIN)
        return group.get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(BROUGHT.items()))


@click.group("otel", cls=_Commands)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Send what ledgers hold to an OpenTelemetry collector, as spans."""
    ctx.obj = Ledgers(ctx.obj.workspace)
