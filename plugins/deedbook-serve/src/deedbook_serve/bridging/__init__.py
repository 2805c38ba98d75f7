"""The bridge for hooks of coding agents: the client that an agent starts, and the server's side."""
