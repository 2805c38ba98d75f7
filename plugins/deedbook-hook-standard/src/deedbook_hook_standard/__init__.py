"""Hooks for Deedbook: allow by default, deny dangerous tools, redact card numbers, stop the loop."""

from .guards import Allow, DenyTools
from .redaction import RedactPii, redact
from .stopping import Stop

__all__ = ["Allow", "DenyTools", "RedactPii", "Stop", "redact"]
__version__ = "0.1.0"
