"""The version of this kernel."""

from typing import Final

VERSION: Final = "0.1.0"
"""The version that charters and ledgers name."""
