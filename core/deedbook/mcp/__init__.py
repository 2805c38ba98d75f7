"""Listings of MCP servers, and how they compare with the charter."""
