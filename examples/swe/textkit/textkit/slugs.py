"""Addresses for titles."""

import re
import unicodedata

LONGEST = 40


def slugify(text: str, longest: int = LONGEST) -> str:
    """Return *text* as part of an address: words in lower case, joined by hyphens."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.findall("[a-z]+", plain)
    return "-".join(words)[:longest].rstrip("-")
