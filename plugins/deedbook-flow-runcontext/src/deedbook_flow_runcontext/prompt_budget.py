"""What a conversation leaves out where its prompt exceeds a budget of tokens: results of tools, the oldest first."""

import json
from collections import Counter
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
    """A content that the prompt does not hold any more: the *role* of its message, its digest and its size in bytes.

    *call* is the id of the call whose result it is.
    """

    role: str
    digest: str
    size: int
    call: str | None = None

    @classmethod
    def of(cls, message: Object) -> "LeftOut":
        """Describe the content of *message*."""
        raw = message["content"].encode()
        return cls(message["role"], sha256(raw).hexdigest(), len(raw), message.get("tool_call_id"))

    def to_json(self) -> dict[str, Any]:
        """Return the description for the execution log."""
        return {name: value for name, value in attrs.asdict(self).items() if value is not None}


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
        left = LeftOut.of(message)
        found.append(left)
        message["content"] = notice
        excess -= (left.size - len(notice)) // _BYTES_PER_TOKEN
    return made, found


def measure(messages: Sequence[Object]) -> dict[str, int]:
    """Return the bytes of the contents by the role of their messages; ``system`` has the instructions and the skill."""
    sizes = Counter[str]()
    for message in messages:
        sizes[message["role"]] += len(message["content"].encode())
    return dict(sizes)


def find_removed(before: Sequence[Object], after: Sequence[Object]) -> list[LeftOut]:
    """Return what *before* holds and *after* does not: hooks may remove or shorten any message."""
    kept = Counter(_identity(message) for message in after)
    kept.subtract(_identity(message) for message in before)
    found = []
    for message in before:
        if kept[_identity(message)] < 0:
            kept[_identity(message)] += 1
            found.append(LeftOut.of(message))
    return found


def _identity(message: Object) -> tuple[str, str, str | None]:
    return message["role"], message["content"], message.get("tool_call_id")


def _removable(messages: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the messages that a shorter notice can replace, and the notice."""
    for message in messages:
        if message["role"] != "tool":
            continue
        size = len(message["content"].encode())
        notice = json.dumps({"left_out": f"{size} bytes, for the prompt's limit of tokens"})
        if len(notice) < size:
            yield message, notice
