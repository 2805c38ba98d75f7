"""Write Markdown in which every given text is shown literally."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from deedbook.format.terminal import plain

_ACTIVE: Final = re.compile(r"([\\`*_{}\[\]()<>#|~&!$^@]|:(?=/)|^[-+=]|(?i:(?<=www))\.)")
_NUMBERED: Final = re.compile(r"^([0-9]{1,9})\.")
"""Emphasis, code, links, tags, headings, tables, mathematics anywhere; lists and addresses where they begin."""


def escape(text: str) -> str:
    """Return *text* in one line without any active character of Markdown or HTML."""
    return _NUMBERED.sub(r"\1\\.", _ACTIVE.sub(r"\\\1", plain(" ".join(text.split()))))


def quote(text: str) -> list[str]:
    """Return *text* as the lines of a quotation, each escaped."""
    return [f"> {escape(line)}".rstrip() for line in text.splitlines()] or [">"]


def block(value: Any) -> list[str]:
    """Return a JSON value as the lines of a code block that its content cannot close."""
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    lines = ["".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line) for line in text.split("\n")]
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return [f"{fence}json", *lines, fence]


def front(members: Mapping[str, Any]) -> list[str]:
    """Return front matter: each member in one line of YAML, so that no value can end it or add another."""
    return [
        "---",
        *(f"{name}: {_scalar(json.dumps(value, ensure_ascii=False))}" for name, value in members.items()),
        "---",
    ]


def _scalar(text: str) -> str:
    """Return JSON as YAML: unprintable characters are escaped, beyond U+FFFF in YAML's own notation."""
    return "".join(c if c.isprintable() and c < "\uffff" else f"\\U{ord(c):08x}" for c in text)


def row(cells: Iterable[str]) -> str:
    """Return a row of a table; cells are escaped."""
    return f"| {' | '.join(escape(cell) for cell in cells)} |"
