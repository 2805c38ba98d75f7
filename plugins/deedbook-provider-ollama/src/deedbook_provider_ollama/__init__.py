"""The model provider ``ollama``: Ollama's own chat API."""

from .provider import Ollama

__all__ = ["Ollama"]
