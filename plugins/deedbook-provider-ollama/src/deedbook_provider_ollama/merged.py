"""A stream's lines, put together to the answer that would have come without a stream."""

from typing import Any

from deedbook import Object
from deedbook_provider_http import Trouble
from deedbook_provider_http.reply import obj, objects, text_of


class MergedChat:
    """What the lines so far say."""

    def __init__(self) -> None:
        self._last: Object | None = None
        self._texts: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def add(self, event: Object) -> str:
        """Take one line; return the text that it adds."""
        if self._last is not None:
            raise Trouble("the stream goes on after the answer was done", retryable=True)
        message = event.get("message")
        message = {} if message is None else obj(message, "the stream holds a message that is no JSON object")
        text = text_of(message.get("content"), "the stream holds a content that is no text")
        self._texts.append(text)
        self._calls += objects(message.get("tool_calls") or [], "the stream holds tool_calls that are no objects")
        if event.get("done") is True:
            self._last = event
        return text

    def document(self) -> Object:
        """Return the whole; raises `Trouble` if the stream ended before its answer did."""
        if self._last is None:
            raise Trouble("the stream ended before the answer was complete", again=True)
        calls = {"tool_calls": self._calls} if self._calls else {}
        return {**self._last, "message": {"role": "assistant", "content": "".join(self._texts), **calls}}
