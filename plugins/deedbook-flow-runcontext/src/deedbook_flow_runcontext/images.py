"""Images that a prompt marks, as parts of ``completion_request_v3``.

A mark is a line of its own, which ``deedbook run --image`` writes::

    ![image/png](<shots/login.png> "sha256:…")

Without the digest it is ordinary Markdown. So a text from elsewhere cannot make a model see a file whose content its
author does not know.
"""

import re
from typing import Any, Final

_MARK: Final = re.compile(r'^!\[(image/(?:gif|jpeg|png|webp))\]\(<([^<>\n]+)> "sha256:([0-9a-f]{64})"\)$', re.MULTILINE)


def find_images(prompt: str) -> list[dict[str, Any]]:
    """Return a part for each image that a prompt marks, each once, in order."""
    found = dict.fromkeys(match.groups() for match in _MARK.finditer(prompt))
    return [{"type": "image", "media_type": kind, "path": path, "sha256": digest} for kind, path, digest in found]
