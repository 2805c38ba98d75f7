"""What a conversation leaves out where its prompt exceeds a budget of tokens: results of tools, the oldest first."""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

import attrs

from deedbook import Object

SHORTENED: Final = "prompt.shortened"
"""The note in the execution log that records what was left out."""
PROMPT_TOO_LONG: Final = "PROMPT_TOO_LONG"
"""The code if nothing more can be left out."""
_BYTES_PER_TOKEN: Final = 4


@attrs.frozen
class LeftOut:
    """A result that a message does not hold any more: the *call*, and the digest and size of the content."""

    call: str
    digest: str
    size: int


def leave_out(messages: Sequence[Object], excess: int) -> tuple[list[dict[str, Any]], list[LeftOut]]:
    """Return *messages* without the oldest results of tools that make up about *excess* tokens, and these results.

    The message of a result stays, and says that it was left out: the model knows which calls it made. Without a result
    to leave out, the messages are the same.
    """
    made = [dict(message) for message in messages]
    found: list[LeftOut] = []
    for message, notice in _removable(made):
        if excess <= 0:
            break
        raw = message["content"].encode()
        found.append(LeftOut(message["tool_call_id"], sha256(raw).hexdigest(), len(raw)))
        message["content"] = notice
        excess -= (len(raw) - len(notice)) // _BYTES_PER_TOKEN
    return made, found


def _removable(messages: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the messages that a shorter notice can replace, and the notice."""
    for message in messages:
        if message["role"] != "tool":
            continue
        size = len(message["content"].encode())
        notice = json.dumps({"left_out": f"{size} bytes, for the prompt's limit of tokens"})
        if len(notice) < size:
            yield message, notice
