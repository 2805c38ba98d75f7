"""The model calls of a ledger: each request with the answer that it got, sealed values opened."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, BinaryIO, Final

import attrs

from deedbook import Failed, IntakeError, parse_payload

from .lines import lines

SALT: Final = 32
MOST: Final = 16 * 1024 * 1024
_SEALED: Final = "$sealed"

Open = Callable[[str], BinaryIO]


@attrs.define
class Answer:
    """One recorded request (event *seq*), and how it ended: a *response*, an *error*, or neither.

    *gone* says why the request or the answer cannot be read any more. *asked_by* is the request that was answered by
    asking this one, whose response states no tokens of its own.
    """

    seq: int
    request: Any
    response: Any = None
    error: dict[str, Any] | None = None
    gone: str = ""
    asked_by: "Answer | None" = None
    usage: Any = None

    def answered(self, response: Any) -> None:
        """Take the response, with the usage of the request that it was taken from."""
        self.response = response
        if isinstance(response, dict):
            if self.usage is not None:
                self.response = {**response, "usage": self.usage}
            if self.asked_by is not None:
                self.asked_by.usage = self.response.get("usage")


def read_recording(path: str, open_: Open) -> list[Answer]:
    """Return the model calls of the ledger at *path*, in their order; *open_* opens a file of the workspace.

    A path that does not end in ``.jsonl`` is a session's folder, as the state has it. Raises `Failed`.
    """
    place = path if path.endswith(".jsonl") else f"{path.rstrip('/')}/.events.jsonl"
    folder = place.rpartition("/")[0]
    try:
        with open_(place) as file:
            return list(_answers(file, _Sealed(f"{folder}/sealed" if folder else "sealed", open_)))
    except OSError as problem:
        raise Failed("PROVIDER_ERROR", f"{place} cannot be read: {problem.strerror}") from None
    except IntakeError as problem:
        raise Failed(problem.error.code, f"{place} is no ledger that can be served: {problem}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise Failed("PROVIDER_ERROR", f"{place} is no ledger that can be served: {problem}") from None


def _answers(file: BinaryIO, sealed: "_Sealed") -> Iterator[Answer]:
    """Yield every request once the whole ledger is read; outcomes may be far from what they answer.

    A request beneath another one is an attempt to answer that one, and no question of its own.
    """
    found: dict[str, Answer] = {}
    for line in lines(file):
        asked = found.get(line.parent or "")
        if line.type == "llm.request":
            answer = found[line.span] = Answer(line.seq, None, asked_by=asked)
            answer.request = _member(line.payload, "request", sealed, answer)
        elif line.type == "llm.response" and asked is not None:
            asked.answered(_member(line.payload, "response", sealed, asked))
        elif line.type == "llm.error" and asked is not None:
            asked.error = {
                name: _member(line.payload, name, sealed, asked) for name in ("code", "message", "retryable")
            }
    yield from (answer for answer in found.values() if answer.asked_by is None)


def _member(payload: dict[str, Any] | None, name: str, sealed: "_Sealed", answer: Answer) -> Any:
    if payload is None:
        answer.gone = "its payload was taken out of the ledger"
        return None
    try:
        return sealed.opened(payload[name])
    except FileNotFoundError:
        answer.gone = "a sealed value of it is not there (copy the folder `sealed` along; it may have been erased)"
        return None


class _Sealed:
    """The sealed values beside a ledger, in *folder*."""

    def __init__(self, folder: str, open_: Open) -> None:
        self._folder, self._open = folder, open_

    def opened(self, value: Any) -> Any:
        """Return *value* with what is sealed in it opened; raises `FileNotFoundError`, or `ValueError` if changed."""
        if isinstance(value, list):
            return [self.opened(item) for item in value]
        if not isinstance(value, dict):
            return value
        if _SEALED not in value:
            return {key: self.opened(item) for key, item in value.items()}
        digest = str(value[_SEALED])
        with self._open(f"{self._folder}/{digest}") as file:
            raw = file.read(MOST + SALT + 1)
        if sha256(raw).hexdigest() != digest:
            raise ValueError(f"sealed/{digest} is not what the ledger commits to")
        return self.opened(parse_payload(raw[SALT:]))
