"""Hooks for Deedbook: allow by default, deny dangerous tools, redact, hint at abilities, stop the loop."""

from .guards import Allow, DenyTools
from .redaction import RedactPii, redact
from .routing import Routing
from .stopping import Stop

__all__ = ["Allow", "DenyTools", "RedactPii", "Routing", "Stop", "redact"]
__version__ = "0.1.0"
