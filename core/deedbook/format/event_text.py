"""Values of events as text for people."""

import json
from typing import Any

from .canonical import SEALED_KEY


def show(value: Any) -> str:
    """Return a JSON value as text: a string unchanged, a sealed value by its size, anything else compact."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and SEALED_KEY in value:
        return f"[sealed, {value.get('size')} bytes]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
