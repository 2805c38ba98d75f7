"""Values of events as text for people."""

import json
from collections.abc import Mapping
from typing import Any

from .canonical import SEALED_KEY


def show(value: Any) -> str:
    """Return a JSON value as text: a string unchanged, a sealed value by its size, anything else compact."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and SEALED_KEY in value:
        return f"[sealed, {value.get('size')} bytes]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def describe_reason(request: Mapping[str, Any]) -> str:
    """Return why a request for approval was made; that of a fork names the fork's parent first."""
    fork = f"fork of session {show(request['fork_of'])}: " if "fork_of" in request else ""
    return f"{fork}{show(request.get('reason'))}"
