"""A model provider that asks no model: it serves the recorded answers of a ledger again."""

from .provider import Recorded

__all__ = ["Recorded"]
