"""Parse JSON text strictly: one document, no duplicate key, no NaN and no infinity.

This module only parses. `canonical.parse`, the intake of everything from outside, decides what may be recorded. It
imports only the standard library, so that a client of the runtime starts quickly.
"""

import json
from collections.abc import Callable
from typing import Any, NoReturn


def load(text: bytes | str, parse_int: Callable[[str], Any] | None = None) -> Any:
    """Return the value of JSON *text*; bytes are UTF-8.

    *parse_int* converts the digits of an integer. Raises `json.JSONDecodeError` or `UnicodeDecodeError` for text that
    is not JSON, another `ValueError` for JSON that is ambiguous or too deep.
    """
    try:
        return json.loads(
            text.decode("utf-8", "strict") if isinstance(text, bytes) else text,
            object_pairs_hook=_unique,
            parse_int=parse_int,
            parse_constant=_no_constant,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice!r} appears twice")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
