"""Text that is safe to print: it may come from a model, a tool, or the author of a file."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

MAX_EXCERPT: Final = 120
MOST_OF_A_KIND: Final = 20
"""How many items of one kind, such as the failures of a check, are described; the rest are counted."""


def plain(text: str) -> str:
    r"""Return *text* on one line, with every active or invisible character of a terminal written as ``\u{..}``.

    These are all characters that Unicode does not call printable: controls, escapes, line and paragraph separators,
    bidirectional and other format characters, lone surrogates, private and unassigned ones.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\u{{{ord(char):x}}}" for char in text)


def short(text: str, limit: int = MAX_EXCERPT) -> str:
    """Return *text* truncated to *limit* characters, with an ellipsis if it was truncated."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def excerpt(found: bytes | str) -> str:
    r"""Return a short, plain form of *found*; bytes that are not UTF-8 are written as ``\xNN``."""
    text = found[: 4 * MAX_EXCERPT].decode("utf-8", "backslashreplace") if isinstance(found, bytes) else found
    return plain(short(text))


def pluralise(number: int, noun: str) -> str:
    """Return *number* with its *noun*, in the plural unless it is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def few(texts: Iterable[str], limit: int = MOST_OF_A_KIND) -> Iterator[str]:
    """Yield the first *limit* of *texts*, and then the number of the others."""
    rest = iter(texts)
    yield from islice(rest, limit)
    if more := sum(1 for _ in rest):
        yield f"and {more} more"
