"""The model provider ``fallback``: asks other models of the profile in turn, and again where that can help."""

from .provider import Fallback

__all__ = ["Fallback"]
