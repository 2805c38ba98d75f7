"""Try Deedbook plugins in real workspaces."""

from .lab import Lab

__all__ = ["Lab"]
