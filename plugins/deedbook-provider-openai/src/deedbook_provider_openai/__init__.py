"""The model provider ``openai``: Chat Completions at OpenAI or any endpoint that is compatible with it."""

from .provider import OpenAI

__all__ = ["OpenAI"]
