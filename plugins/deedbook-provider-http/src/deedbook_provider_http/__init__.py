"""What model providers over HTTP have in common. Start at `HttpProvider`; importing it loads no HTTP library."""

from .provider import HttpProvider, Merged
from .settings import Settings, settings_schema
from .trouble import Endpoint, Trouble

__all__ = ["Endpoint", "HttpProvider", "Merged", "Settings", "Trouble", "settings_schema"]
