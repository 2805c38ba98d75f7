"""The server: abilities, or another server behind the gateway, for MCP clients."""
