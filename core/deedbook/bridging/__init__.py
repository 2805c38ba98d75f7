"""The bridge for coding agents' hooks: the client that an agent starts, and the runtime's side that answers."""
