"""A stream's events, put together to the message that would have come without a stream."""

from typing import Any

from deedbook import Object
from deedbook_provider_http import Trouble
from deedbook_provider_http.reply import obj, text_of


class MergedMessage:
    """What the events so far say."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._ended = False

    def add(self, event: Object) -> str:
        """Take one event; return the text that it adds. Events of a type that is not known say nothing."""
        match event.get("type"):
            case "message_start":
                self._message = dict(_part(event, "message"))
                self._count(self._message.get("usage"))
            case "content_block_start":
                return self._begin(event)
            case "content_block_delta":
                return self._extend(event)
            case "message_delta":
                self._message |= _part(event, "delta")
                self._count(event.get("usage"))
            case "message_stop":
                self._ended = True
        return ""

    def document(self) -> Object:
        """Return the whole; raises `Trouble` if the stream ended before its answer did."""
        if not self._ended:
            raise Trouble("the stream ended before the answer was complete", again=True)
        blocks = [block for _, block in sorted(self._blocks.items())]
        return {**self._message, "content": blocks, "usage": self._usage or None}

    def _count(self, told: object) -> None:
        """Take counts; later ones hold for the whole message."""
        if told is not None:
            given = obj(told, "the usage in the stream is no JSON object")
            self._usage |= {name: value for name, value in given.items() if value is not None}

    def _begin(self, event: Object) -> str:
        block = dict(_part(event, "content_block"))
        if block.get("type") == "tool_use":
            block["input"] = ""  # it comes as text, in pieces; what stands here is an empty object
        elif block.get("type") == "thinking":
            block = {"thinking": "", "signature": "", **block}
        index = _index(event)
        if index in self._blocks:
            raise Trouble(f"the stream begins its block {index} twice", retryable=True)
        self._blocks[index] = block
        return text_of(block.get("text"), "the text of a block is no text") if block.get("type") == "text" else ""

    def _extend(self, event: Object) -> str:
        block, delta = self._blocks.get(_index(event)), _part(event, "delta")
        if block is None:
            raise Trouble("the stream holds a piece of a block that has not begun", retryable=True)
        match delta.get("type"):
            case "text_delta":
                return self._append(block, "text", delta.get("text"))
            case "input_json_delta":
                self._append(block, "input", delta.get("partial_json"))
            case "thinking_delta":
                self._append(block, "thinking", delta.get("thinking"))
            case "signature_delta":
                self._append(block, "signature", delta.get("signature"))
        return ""

    def _append(self, block: dict[str, Any], name: str, piece: object) -> str:
        if not isinstance(block.get(name), str) or not isinstance(piece, str):
            raise Trouble("the stream holds a piece that is no text, or does not fit its block", retryable=True)
        block[name] += piece
        return piece


def _part(event: Object, name: str) -> dict[str, Any]:
    found = event.get(name)
    if not isinstance(found, dict):
        raise Trouble(f"the stream holds an event whose {name} is no JSON object", retryable=True)
    return found


def _index(event: Object) -> int:
    index = event.get("index")
    if type(index) is not int:
        raise Trouble("the stream holds a block without a number", retryable=True)
    return index
