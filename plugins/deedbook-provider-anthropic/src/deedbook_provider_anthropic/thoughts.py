"""Blocks of thinking: what the API wants back, as it was, with the calls that its model has made.

``completion_request_v2`` has no place for them, so that they travel in the id of an answer's first call:
``<the API's id>:<layout>``. The layout is JSON, a list with one member for each block of the answer: the block of
thinking itself, the number of characters of a text, or null for a call.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from deedbook import IntakeError, Object, parse

KINDS: Final = ("thinking", "redacted_thinking")
_OURS: Final = "toolu_"


def add_layout(calls: Sequence[Object], blocks: Sequence[Object]) -> list[Object]:
    """Return the calls of an answer; if it holds blocks of thinking, the id of the first call has its layout."""
    if not calls or not any(block.get("type") in KINDS for block in blocks):
        return list(calls)
    layout = json.dumps([_member(block) for block in blocks], ensure_ascii=False, separators=(",", ":"))
    return [{**calls[0], "id": f"{calls[0]['id']}:{layout}"}, *calls[1:]]


def own_id(call_id: str) -> str:
    """Return the API's own part of an id."""
    return call_id.partition(":")[0] if call_id.startswith(_OURS) else call_id


def restore_blocks(message: Object, calls: Sequence[Object]) -> list[Object] | None:
    """Return the blocks of an assistant's message as they were; `None` if they were not kept, or it was changed.

    *calls* are the blocks of its calls.
    """
    _, _, told = message["tool_calls"][0]["id"].partition(":")
    try:
        layout = parse(told) if message["tool_calls"][0]["id"].startswith(_OURS) and told else None
    except IntakeError:
        return None
    if not isinstance(layout, list):
        return None
    text, left = message["content"], list(calls)
    blocks: list[Object] = []
    for member in layout:
        if type(member) is int:
            blocks.append({"type": "text", "text": text[:member]})
            text = text[member:]
        elif member is None and left:
            blocks.append(left.pop(0))
        elif isinstance(member, dict) and member.get("type") in KINDS:
            blocks.append(member)
        else:
            return None
    return None if text or left or any(block.get("text") == "" for block in blocks) else blocks


def _member(block: Object) -> Any:
    if block.get("type") in KINDS:
        return block
    return len(block.get("text") or "") if block.get("type") == "text" else None
