"""Text that is safe to print: what is shown may come from a model, a tool, or whoever wrote a file."""

from typing import Final

MAX_EXCERPT: Final = 120


def plain(text: str) -> str:
    r"""Return *text* on one line, with everything a terminal could act on or hide spelled as ``\u{..}``.

    That is each character that Unicode does not call printable: controls, escapes, line and paragraph separators,
    bidirectional and other format characters, lone surrogates, private and unassigned ones.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\u{{{ord(char):x}}}" for char in text)


def short(text: str, limit: int = MAX_EXCERPT) -> str:
    """Return *text* cut to *limit* characters, with an ellipsis where something was cut."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def excerpt(found: bytes | str) -> str:
    r"""Return a short, plain picture of what was *found*; bytes that are not UTF-8 are spelled ``\xNN``."""
    text = found[: 4 * MAX_EXCERPT].decode("utf-8", "backslashreplace") if isinstance(found, bytes) else found
    return plain(short(text))
