"""A policy kind for Deedbook: budgets of calls, tokens, cost and time for a session."""

from .budgets import Budget

__all__ = ["Budget"]
__version__ = "0.1.0"
