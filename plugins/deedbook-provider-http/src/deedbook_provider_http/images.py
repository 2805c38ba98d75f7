"""The contents of messages: texts, and images, which are read from the workspace when the model is asked."""

import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from deedbook import Failed, Host, Object

from .trouble import Trouble

MAX_BYTES: Final = 5 * 1024 * 1024
"""How many bytes an image may have."""
MAX_ALL: Final = 15 * 1024 * 1024
"""How many bytes the images of one request may have together."""
TOKENS: Final = 1600
"""About how many tokens an image is, where the endpoint does not count: the most that a common size has."""

_BEGINNINGS: Final = {
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}


def text_parts(content: "str | list[Object]") -> list[str]:
    """Return the texts of a message's content."""
    return [content] if isinstance(content, str) else [part["text"] for part in content if part["type"] == "text"]


def estimated_bytes(content: "str | list[Object]", bytes_per_token: int) -> int:
    """Return how many bytes of text a message's content is worth in tokens."""
    texts = text_parts(content)
    images = 0 if isinstance(content, str) else len(content) - len(texts)
    return sum(len(text.encode()) for text in texts) + images * TOKENS * bytes_per_token


def message_parts(
    content: "str | list[Object]", text: Callable[[str], Any], image: Callable[[str, str], Any]
) -> list[Any]:
    """Return a content as a vendor writes its parts: *text* gets a text, *image* a media type and the data in base64.

    A text without characters is left out, because some vendors refuse it.
    """
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [
        image(part["media_type"], part["data"]) if part["type"] == "image" else text(part["text"])
        for part in parts
        if part["type"] == "image" or part["text"]
    ]


def load_images(request: Object, host: Host) -> Object:
    """Return *request* with the ``data`` of each image in base64; raises `Trouble` for one that cannot be sent."""
    if request["schema_version"] != "v3":
        return request
    loader = _Loader(host)
    return {**request, "messages": [loader.load(message) for message in request["messages"]]}


class _Loader:
    """Loads the images of one request."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loaded = 0

    def load(self, message: Object) -> Object:
        """Return a message with its images."""
        if isinstance(message["content"], str):
            return message
        parts = [{**part, "data": self._data(part)} if part["type"] == "image" else part for part in message["content"]]
        return {**message, "content": parts}

    def _data(self, part: Object) -> str:
        path = part["path"]
        try:
            with self._host.open(path) as file:
                raw = file.read(MAX_BYTES + 1)
        except (OSError, Failed) as problem:
            why = problem.strerror if isinstance(problem, OSError) else problem
            raise Trouble(f"the image {path} cannot be read: {why}") from None
        if len(raw) > MAX_BYTES:
            raise Trouble(f"the image {path} has more than {MAX_BYTES} bytes; give a smaller one")
        if sha256(raw).hexdigest() != part["sha256"]:
            raise Trouble(f"the image {path} has changed since it was given; give it again")
        if not _BEGINNINGS[part["media_type"]].match(raw):
            raise Trouble(f"the image {path} is not {part['media_type']}; correct media_type, or give another image")
        self._loaded += len(raw)
        if self._loaded > MAX_ALL:
            raise Trouble(
                f"the images of the request have more than {MAX_ALL} bytes together; give fewer or smaller ones"
            )
        return b64encode(raw).decode()
