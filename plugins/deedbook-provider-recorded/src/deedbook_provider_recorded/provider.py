"""The provider ``recorded``: each request gets the answer that the same request got in a ledger, in their order."""

from collections import deque
from threading import Lock
from typing import Any, Final

from deedbook import Ctx, Failed, HandlerSpec, Host, Object
from deedbook.contract.pointers import MEMBER_POINTER

from .matching import Difference, compared, differences, key_of
from .recording import Answer, read_recording

NOT_RECORDED: Final = "NOT_RECORDED"
SHOWN: Final = 5
"""Differences that an error tells."""


class Recorded:
    """Serves the answers of the ledger under ``ledger``: a copied ``.events.jsonl``, or the folder that it lies in.

    A request is the same if its canonical JSON is, without what ``ignore`` points to. The same request gets its
    recorded answers in the order of their occurrence, also errors. One that has none left, or never was there, fails
    with ``NOT_RECORDED`` and what differs from the nearest recorded one.
    """

    spec = HandlerSpec(
        settings={
            "type": "object",
            "required": ["ledger"],
            "properties": {
                "ledger": {"type": "string", "minLength": 1},
                "ignore": {"type": "array", "items": {"type": "string", "pattern": MEMBER_POINTER}},
                "on_miss": {"const": "error"},
            },
            "additionalProperties": False,
        },
        effects="read",
        images=True,
    )

    def __init__(self, settings: Object, host: Host) -> None:
        self.path: str = settings["ledger"]
        self._ignored: tuple[str, ...] = tuple(settings.get("ignore", ()))
        self._open = host.open
        self._lock = Lock()
        self._all: list[tuple[Any, Answer]] | None = None
        self._left: dict[str, deque[Answer]] = {}

    def __call__(self, request: Object, _ctx: Ctx) -> dict[str, Any]:
        """Return the recorded answer to *request*; raises `Failed`."""
        wanted = compared(request, self._ignored)
        with self._lock:
            if self._all is None:
                self._all = self._read()
            left = self._left.get(key_of(wanted))
            answer = left.popleft() if left else None
        if answer is None:
            raise self._missed(wanted, self._all, exhausted=left is not None)
        return self._served(answer)

    def _read(self) -> list[tuple[Any, Answer]]:
        found = read_recording(self.path, self._open)
        for answer in found:
            if answer.request is not None:
                key = key_of(compared(answer.request, self._ignored))
                self._left.setdefault(key, deque()).append(answer)
        return [(compared(each.request, self._ignored), each) for each in found]

    def _served(self, answer: Answer) -> dict[str, Any]:
        where = f"{self.path}: event {answer.seq}"
        if answer.gone:
            raise Failed(NOT_RECORDED, f"{where}: {answer.gone}")
        if answer.error is not None:
            said = answer.error
            raise Failed(str(said["code"]), str(said["message"]), retryable=said["retryable"] is True)
        if not isinstance(answer.response, dict):
            raise Failed(NOT_RECORDED, f"{where} was asked, and no answer was recorded")
        return dict(answer.response)

    def _missed(self, wanted: Any, known: list[tuple[Any, Answer]], *, exhausted: bool) -> Failed:
        """Return the failure, with what differs from the nearest recorded request."""
        gone = sum(answer.request is None for _, answer in known)
        more = f"; {gone} recorded requests cannot be read any more" if gone else ""
        if exhausted:
            return Failed(NOT_RECORDED, f"{self.path}: all recorded answers to this request were served{more}")
        near = [(differences(request, wanted), each) for request, each in known if each.request is not None]
        if not near:
            return Failed(NOT_RECORDED, f"{self.path} holds no request to a model{more}")
        found, answer = min(near, key=lambda pair: len(pair[0]))
        return Failed(NOT_RECORDED, f"{self.path}: the nearest is event {answer.seq}: {_told(found)}{more}")


def _told(found: list[Difference]) -> str:
    rest = len(found) - SHOWN
    return "; ".join(map(str, found[:SHOWN])) + (f"; and {rest} more" if rest > 0 else "")
