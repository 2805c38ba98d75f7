"""The client: connections to MCP servers."""
