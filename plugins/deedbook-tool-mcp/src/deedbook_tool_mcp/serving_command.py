"""``deedbook mcp serve``: the workspace's abilities as the tools of an MCP server."""

import click


@click.command("serve")
def command() -> None:
    """Show abilities as the tools of an MCP server."""
    raise click.UsageError("comes with a later release")
