"""The bytes of a stream, cut into its events: server-sent events, or a JSON document a line."""

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

Form: TypeAlias = Literal["sse", "lines"]

KINDS: Final = {"sse": "text/event-stream", "lines": "application/x-ndjson"}
"""The content type of each form."""


class EventStream:
    """Takes bytes as they arrive, in pieces of any size, and gives the data of each complete event.

    The bytes are not decoded: whether they are UTF-8 is for intake to check.
    """

    def __init__(self, form: Form) -> None:
        self._form = form
        self._rest = bytearray()
        self._searched = 0
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take *chunk*; yield the data of each event that it completes."""
        self._rest += chunk
        while (end := self._rest.find(b"\n", self._searched)) >= 0:
            line = bytes(self._rest[:end]).removesuffix(b"\r")
            del self._rest[: end + 1]
            self._searched = 0
            yield from self._line(line)
        self._searched = len(self._rest)

    def end(self) -> Iterator[bytes]:
        """Yield the event that has no end, if there is one: it may be whole, or cut off."""
        yield from self._line(bytes(self._rest).removesuffix(b"\r"))
        self._rest.clear()
        if self._form == "sse":
            yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[bytes]:
        if self._form == "lines":
            if line.strip():
                yield line
        elif not line:
            if self._data:
                yield b"\n".join(self._data)
            self._data = []
        elif line == b"data" or line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
