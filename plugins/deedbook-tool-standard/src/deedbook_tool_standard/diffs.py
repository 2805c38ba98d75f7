"""The lines that a unified diff adds; pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from deedbook.contract import Failed

_HUNK: Final = re.compile(r"@@ -[0-9]+(?:,([0-9]+))? \+([0-9]+)(?:,([0-9]+))? @@")
_NEW_FILE: Final = "+++ "
_NOTHING: Final = "/dev/null"


def read_added_lines(diff: str) -> Mapping[str, frozenset[int]]:
    """Return the numbers of the added lines of each file in *diff*, with the prefix ``b/`` left out.

    Raises `Failed` (``ARGUMENT_REFUSED``) for a diff that ends within a hunk, or with a quoted name.
    """
    found: dict[str, set[int]] = {}
    file: str | None = None
    lines = iter(diff.split("\n"))
    for line in lines:
        hunk = _HUNK.match(line)
        if line.startswith(_NEW_FILE):
            file = _read_name(line)
            if file is not None:
                found.setdefault(file, set())
        elif hunk:
            added = set(_read_hunk(lines, hunk))
            if file is not None:
                found[file] |= added
    return {name: frozenset(numbers) for name, numbers in found.items()}


def _read_name(line: str) -> str | None:
    name = line.removeprefix(_NEW_FILE).removesuffix("\t")
    if name.startswith('"'):
        why = f"the diff names {name[:200]}; a name with quotes or control characters cannot be compared"
        raise Failed("ARGUMENT_REFUSED", why)
    return None if name == _NOTHING else name.removeprefix("b/")


def _read_hunk(lines: Iterator[str], hunk: re.Match[str]) -> Iterator[int]:
    """Yield the numbers of the added lines of a hunk, whose lines are taken from *lines*."""
    old, new = (1 if count is None else int(count) for count in (hunk[1], hunk[3]))
    number = int(hunk[2])
    while old > 0 or new > 0:
        line = next(lines, None)
        if line is None:
            raise Failed("ARGUMENT_REFUSED", f"the diff ends within the hunk {hunk[0]}")
        kind = line[:1]
        if kind == "+":
            yield number
        if kind in ("+", " ", ""):
            new, number = new - 1, number + 1
        if kind in ("-", " ", ""):
            old -= 1
