"""Two model providers that need no model: `Rules` reads a skill's own rules, `Transcript` plays a file."""

from .provider import Rules
from .transcript import Transcript

__all__ = ["Rules", "Transcript"]
