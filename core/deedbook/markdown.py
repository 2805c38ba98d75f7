"""Markdown that says what it was given and nothing else: whatever stands in a text is shown and never obeyed."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .terminal import plain

_ACTIVE: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&$:=@^])")


def escaped(text: str) -> str:
    """Return *text* in one line in which no character means anything to Markdown or HTML."""
    return _ACTIVE.sub(r"\\\1", plain(" ".join(text.split())))


def quoted(text: str) -> list[str]:
    """Return *text* as the lines of a quotation, each escaped."""
    return [f"> {escaped(line)}".rstrip() for line in text.splitlines()] or [">"]


def block(value: Any) -> list[str]:
    """Return a JSON value as the lines of a code block that nothing in it can close; ASCII alone."""
    text = json.dumps(value, indent=2, sort_keys=True).replace("\x7f", "\\u007f")
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return [f"{fence}json", *text.split("\n"), fence]


def front(members: Mapping[str, Any]) -> list[str]:
    """Return front matter: each member as JSON in one line, so that no value can end it or add another."""
    said = [f"{name}: {json.dumps(value).replace(chr(127), chr(92) + 'u007f')}" for name, value in members.items()]
    return ["---", *said, "---"]


def row(cells: Iterable[str]) -> str:
    """Return a row of a table; cells are escaped."""
    return f"| {' | '.join(escaped(cell) for cell in cells)} |"
