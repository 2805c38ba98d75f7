"""The model provider ``local``: a small model that runs in this process."""

from .provider import Local

__all__ = ["Local"]
