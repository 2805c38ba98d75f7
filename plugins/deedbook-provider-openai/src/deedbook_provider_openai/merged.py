"""A stream's chunks, put together to the ``chat.completion`` that would have come without a stream."""

from collections.abc import Mapping
from typing import Any

from deedbook_provider_http import Trouble
from deedbook_provider_http.reply import objects


class MergedCompletion:
    """What the chunks so far say. Only the first choice counts; no other was asked for."""

    def __init__(self) -> None:
        self._text: dict[str, list[str]] = {"content": [], "refusal": []}
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None
        self._usage: Any = None
        self._model: Any = None

    def add(self, chunk: Any) -> str:
        """Take one chunk; return the text that it adds."""
        if not isinstance(chunk, Mapping):
            raise Trouble("the stream holds something that is no chunk", retryable=True)
        self._usage = chunk.get("usage") or self._usage
        self._model = chunk.get("model") or self._model
        choices = chunk.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
            raise Trouble("the stream holds a chunk whose choices are no list of objects", retryable=True)
        return "".join(self._choose(choice) for choice in choices if choice.get("index", 0) == 0)

    def document(self) -> dict[str, Any]:
        """Return the whole; raises `Trouble` if the stream ended before its answer did."""
        if self._finish is None:
            raise Trouble("the stream ended before the answer was complete", again=True)
        said = {name: "".join(parts) or None for name, parts in self._text.items()}
        calls = [call for _, call in sorted(self._calls.items())]
        message = {"role": "assistant", **said, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {"model": self._model, "choices": [choice], "usage": self._usage}

    def _choose(self, choice: Mapping[str, Any]) -> str:
        self._finish = choice.get("finish_reason") or self._finish
        delta = choice.get("delta") or {}
        if not isinstance(delta, Mapping):
            raise Trouble("the stream holds a delta that is no object", retryable=True)
        for part in objects(delta.get("tool_calls") or [], "the stream holds tool_calls that are no list of objects"):
            self._call(part)
        for name, parts in self._text.items():
            if delta.get(name):
                parts.append(_text(delta[name]))
        return str(delta.get("content") or "")

    def _call(self, part: Any) -> None:
        if not isinstance(part, Mapping) or not isinstance(part.get("function") or {}, Mapping):
            raise Trouble("the stream holds a tool call that is no object", retryable=True)
        call = self._calls.setdefault(self._index(part), {"id": None, "function": {"name": "", "arguments": ""}})
        if part.get("id") and call["id"] not in (None, part["id"]):
            raise Trouble("the stream has two tool calls with the same number", retryable=True)
        call["id"] = part.get("id") or call["id"]
        for name, value in (part.get("function") or {}).items():
            if name in call["function"] and value:
                call["function"][name] += _text(value)

    def _index(self, part: Mapping[str, Any]) -> int:
        """Return which call a part belongs to; servers that do not number them begin each with an id."""
        index = part.get("index")
        if type(index) is int:
            return index
        last = len(self._calls) - 1
        return last if last >= 0 and not part.get("id") else last + 1


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Trouble("the stream holds a delta that is no text", retryable=True)
    return value
