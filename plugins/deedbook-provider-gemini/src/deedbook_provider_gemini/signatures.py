"""Signatures of thoughts: what the API wants back with each call that its model has made.

``completion_request_v2`` has no place for them, so that they travel in the id of the call:
``gemini_<number>:<the API's own id>:<signature>``. A call of another provider has no signature; the API documents a
text that stands for one then.
"""

import base64
from collections.abc import Iterable
from typing import Any, Final

from deedbook import Object

FOREIGN: Final = "skip_thought_signature_validator"
"""What the API takes as the signature of a call that its model has not made."""
_OURS: Final = "gemini_"


def build_id(number: int, given: object, signature: object) -> str:
    """Return the id of the conversation's call *number* with what the API said about it."""
    parts = [part if isinstance(part, str) else "" for part in (given, signature)]
    return ":".join([f"{_OURS}{number}", *parts])


def parse_id(call_id: str) -> tuple[str, str]:
    """Return the API's own id and the signature that an id holds; either may be empty."""
    if not call_id.startswith(_OURS) or call_id.count(":") < 2:
        return "", FOREIGN
    front, _, signature = call_id.rpartition(":")
    return front.partition(":")[2], signature


def decode_bytes(contents: Iterable[Object]) -> list[dict[str, Any]]:
    """Return *contents* as the SDK takes them: it encodes the bytes of a signature, and of an image, itself."""
    return [{**content, "parts": [_decode_part(part) for part in content["parts"]]} for content in contents]


def _decode_part(part: Object) -> dict[str, Any]:
    if "inlineData" in part:
        inline = part["inlineData"]
        return {"inlineData": {**inline, "data": base64.b64decode(inline["data"])}}
    signature = part.get("thoughtSignature")
    if not signature:
        return dict(part)
    text = signature.replace("-", "+").replace("_", "/").rstrip("=")
    return {**part, "thoughtSignature": base64.b64decode(text + "=" * (-len(text) % 4))}
