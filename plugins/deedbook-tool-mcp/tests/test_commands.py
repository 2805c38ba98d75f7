"""What the distribution adds to the command line."""

from deedbook.plugins.commands import find_commands
from deedbook_tool_mcp.commands.serve import command


def test_mcp_serve_is_found_and_described_by_its_entry_point():
    offered = find_commands()["mcp.serve"]
    assert offered.owners == ("deedbook-tool-mcp",)
    assert offered.describe().line == "Show abilities as the tools of an MCP server."
    assert offered.load() is command
