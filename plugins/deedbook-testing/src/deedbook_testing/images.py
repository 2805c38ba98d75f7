"""Small images, and requests that show them to a model."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

IMAGES: Final = {
    "red.png": bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100"
        "c9fe92ef0000000049454e44ae426082"
    ),
    "red.gif": bytes.fromhex("47494638396101000100800000ff0000ffffff2c00000000010001000002024401003b"),
}
"""Images of one red pixel."""


def image_of(folder: Path, name: str) -> dict[str, Any]:
    """Write one of `IMAGES` into a workspace, and return it as a part of a request."""
    (folder / name).write_bytes(IMAGES[name])
    return image_part(name, IMAGES[name])


def image_part(path: str, data: bytes) -> dict[str, Any]:
    """Return the image with the content *data* as a part of a request; its name tells the media type."""
    media_type = f"image/{path.rpartition('.')[2]}"
    return {"type": "image", "media_type": media_type, "path": path, "sha256": sha256(data).hexdigest()}


def with_images(text: str, images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a request with one message of a user, who shows *images*."""
    content = [{"type": "text", "text": text}, *images]
    return {"messages": [{"role": "user", "content": content}], "schema_version": "v3"}
