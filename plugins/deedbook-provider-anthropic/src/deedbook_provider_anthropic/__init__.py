"""The model provider ``anthropic``: the Messages API, through the official SDK."""

from .provider import Anthropic

__all__ = ["Anthropic"]
