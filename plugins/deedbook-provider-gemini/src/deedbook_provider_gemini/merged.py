"""A stream's answers, put together to the one that would have come without a stream."""

from typing import Any

from deedbook import Object
from deedbook_provider_http import Trouble
from deedbook_provider_http.reply import objects


class MergedContent:
    """What the pieces so far say. Only the first candidate counts; no other was asked for."""

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []
        self._finish: Any = None
        self._blocked = False

    def add(self, event: Object) -> str:
        """Take one piece; return the text that it adds."""
        later = ("usageMetadata", "modelVersion", "promptFeedback")
        self._told |= {name: event[name] for name in later if event.get(name) is not None}
        feedback = event.get("promptFeedback")
        self._blocked = self._blocked or (isinstance(feedback, dict) and bool(feedback.get("blockReason")))
        candidates = objects(event.get("candidates") or [], "the stream's candidates are no list of objects")
        return "".join(self._candidate(each) for each in candidates if each.get("index", 0) == 0)

    def document(self) -> Object:
        """Return the whole; raises `Trouble` if the stream ended before its answer did."""
        if self._finish is None and not self._blocked:
            raise Trouble("the stream ended before the answer was complete", again=True)
        if self._finish is None:
            return self._told
        return {**self._told, "candidates": [{"content": {"parts": self._parts}, "finishReason": self._finish}]}

    def _candidate(self, candidate: Object) -> str:
        self._finish = candidate.get("finishReason") or self._finish
        content = candidate.get("content") or {}
        if not isinstance(content, dict):
            raise Trouble("the stream holds a content that is no JSON object", retryable=True)
        parts = objects(content.get("parts") or [], "the stream's parts are no list of objects")
        self._parts += parts
        texts = [part["text"] for part in parts if part.get("text") and not part.get("thought")]
        if not all(isinstance(text, str) for text in texts):
            raise Trouble("the stream holds a part whose text is no text", retryable=True)
        return "".join(texts)
