"""A skill loader: SKILL.md files and ``.agent`` cards."""

from .loader import Markdown

__all__ = ["Markdown"]
