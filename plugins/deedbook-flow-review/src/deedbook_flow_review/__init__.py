"""A flow of six roles: one leads, one plans, one works, another reviews; an advisor and a scaffolder on demand."""

from .review import Review

__all__ = ["Review"]
