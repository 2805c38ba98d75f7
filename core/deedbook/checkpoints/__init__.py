"""The log of a workspace: its key, its leaves and checkpoints, when they are written, and who is told of them."""
