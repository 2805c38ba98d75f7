"""JSON text to values, strictly: one document, no key twice, no NaN and no infinity.

This is the reading alone. What may be recorded is decided by `canonical.parse`, which is the intake of everything from
outside. Imports nothing but the standard library, so that a client of the runtime starts quickly.
"""

import json
from collections.abc import Callable
from typing import Any, NoReturn


def load(text: bytes | str, parse_int: Callable[[str], Any] | None = None) -> Any:
    """Return the value of JSON *text*; bytes are UTF-8. *parse_int* makes the value of an integer from its digits.

    Raises `json.JSONDecodeError` or `UnicodeDecodeError` for what is no JSON at all, another `ValueError` for JSON that
    is ambiguous or too deep.
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
