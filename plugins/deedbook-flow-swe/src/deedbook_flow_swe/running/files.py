"""A file that the runner has read or written."""

from hashlib import sha256

import attrs


@attrs.frozen
class File:
    """A file: its *path* from the workspace's root, its *text*, and its SHA-256."""

    path: str
    text: str
    digest: str


def digest_text(text: str) -> str:
    """Return the SHA-256 of *text* in UTF-8."""
    return sha256(text.encode()).hexdigest()
