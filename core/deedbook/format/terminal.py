"""Text that is safe to print: it may come from a model, a tool, or the author of a file."""

from typing import Final

MAX_EXCERPT: Final = 120


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
