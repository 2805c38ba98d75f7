"""The model provider ``gemini``: generateContent of the Gemini API, through the official SDK."""

from .provider import Gemini

__all__ = ["Gemini"]
