"""The command `deedbook mcp`, and what other commands know of servers."""
