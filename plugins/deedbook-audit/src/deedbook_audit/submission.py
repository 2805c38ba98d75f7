"""Submits checkpoints to a witness by C2SP's protocol, over HTTP or through a folder.

The log names the size that its proof starts from. If the witness knows another size (409), the proof starts from there.
If that size exceeds the log's, or the witness rejects the proof, the witness saw another history: an error, which is
never repaired.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

import attrs

from deedbook.format.checkpoints import Checkpoint
from deedbook.format.errors import DeedbookError, FileRefused, SignatureError, WitnessError, fault
from deedbook.format.files import Folder
from deedbook.format.notes import Note, WitnessKey
from deedbook.format.terminal import excerpt
from deedbook_audit.transparency.cosignatures import cosigned_at
from deedbook_audit.transparency.witness_requests import (
    ANSWERS,
    CHECKPOINTS,
    CONFLICT,
    DONE,
    FORBIDDEN,
    INCONSISTENT,
    MAX_BODY,
    REQUESTS,
    UNKNOWN,
    Answer,
    Request,
    body,
    origin_hash,
)

SECONDS: Final = 5.0
"""The time limit of a witness's answer, in seconds."""
TRIES: Final = 3

_POLL_SECONDS: Final = 0.05
_NAME: Final = re.compile("[0-9a-f]{32}")
_READABLE: Final = 0o644


class Channel(Protocol):
    """A connection to a witness."""

    def ask(self, request: bytes) -> Answer:
        """Return the answer to *request*; raises `WitnessError` (``WITNESS_UNREACHABLE``)."""

    def fetch_newest(self, origin: str) -> str | None:
        """Return the newest note that the witness cosigned for *origin*, unchecked; raises `WitnessError`."""


class WitnessAheadError(WitnessError):
    """The witness has cosigned more leaves of the log than the log has (``WITNESS_REFUSED``)."""

    def __init__(self, name: str, size: int, known: int) -> None:
        self.known = known
        why = f"it has cosigned {known} leaves of this log, which has {size}: the workspace was rolled back or forked"
        super().__init__(fault("WITNESS_REFUSED", why, place=f"witness {name}"))


@attrs.frozen
class WitnessClient:
    """A witness that a workspace names: its *key*, and the channel to it."""

    key: WitnessKey
    channel: Channel

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Read an entry of ``checkpoints.witnesses`` with its key and its folder; raises `SignatureError`."""
        url = entry.get("url")
        way: Channel = HttpChannel(url) if url else FolderChannel(Path(entry["folder"]))
        return cls(WitnessKey.parse(entry["key"]), way)

    def submit(self, note: str, prove: Callable[[int], Sequence[bytes]], known: int) -> Note:
        """Let the witness cosign *note*, and return the note with that line added.

        *prove* returns the proof from a size to the note's; *known* is the size that the witness is expected to know.
        Raises `WitnessError`.
        """
        size = Checkpoint.parse(Note.parse(note).text).size
        for _ in range(TRIES):
            answer = self.channel.ask(body(known, prove(known), note))
            if answer.status != CONFLICT:
                return self._read_answer(note, answer)
            if answer.size is None:
                raise self._error("WITNESS_INVALID", "it answers 409 without the size that it knows")
            if answer.size == known:
                raise self._error("WITNESS_REFUSED", f"it has cosigned another tree of {known} leaves: the log forked")
            if answer.size > size:
                raise WitnessAheadError(self.key.name, size, answer.size)
            known = answer.size
        raise self._error(
            "WITNESS_UNREACHABLE", "others ask it about this log at the same time; it is asked again later"
        )

    def fetch_newest(self, origin: str) -> Note | None:
        """Return the newest checkpoint of *origin* that the witness cosigned; ``None`` if there is none.

        Raises `WitnessError`, also for a note that it did not cosign.
        """
        found = self.channel.fetch_newest(origin)
        if found is None:
            return None
        try:
            note = Note.parse(found)
            good = cosigned_at(self.key, note) is not None and Checkpoint.parse(note.text).origin == origin
        except SignatureError as problem:
            raise self._error("WITNESS_INVALID", f"what it shows is no checkpoint: {problem.error.message}") from None
        if not good:
            raise self._error("WITNESS_INVALID", "what it shows as its newest checkpoint is not cosigned by its key")
        return note

    def add_cosignature(self, note: str, lines: str) -> Note:
        """Return *note* with this witness's line from *lines*; raises `WitnessError` if there is none."""
        try:
            original = Note.parse(note)
            found = Note.parse(f"{original.text}\n{lines}").signatures
        except SignatureError as problem:
            raise self._error("WITNESS_INVALID", f"its answer is no cosignature: {problem.error.message}") from None
        own = tuple(each for each in found if (each.name, each.id) == (self.key.name, self.key.id))[:1]
        cosigned = Note(original.text, (*original.signatures, *own))
        if cosigned_at(self.key, cosigned) is None:
            raise self._error("WITNESS_INVALID", f"its answer holds no cosignature by {self.key}")
        return cosigned

    def _read_answer(self, note: str, answer: Answer) -> Note:
        reason = excerpt(answer.text.partition("\n")[0])
        if answer.status == DONE:
            return self.add_cosignature(note, answer.text)
        if answer.status == INCONSISTENT:
            raise self._error("WITNESS_REFUSED", f"this log does not go on from what it has cosigned: {reason}")
        if answer.status in (FORBIDDEN, UNKNOWN):
            how = "where it runs, name the log's public key to it: deedbook witness trust KEY"
            raise self._error("WITNESS_STRANGER", f"{reason}; {how}")
        raise self._error("WITNESS_UNREACHABLE", f"it answers {answer.status}: {reason}")

    def _error(self, code: str, why: str) -> WitnessError:
        return WitnessError(fault(code, why, place=f"witness {self.key.name}", retryable=code == "WITNESS_UNREACHABLE"))


# --- HTTP -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class HttpChannel:
    """A witness at a *url*, to which ``/add-checkpoint`` is added; redirections are not followed."""

    url: str
    seconds: float = SECONDS

    def ask(self, request: bytes) -> Answer:
        """Post *request*."""
        status, raw = self._exchange("POST", "add-checkpoint", request)
        try:
            return Answer(status, raw.decode())
        except UnicodeDecodeError:
            raise _unreachable_error(self.url, "its answer is not UTF-8") from None

    def fetch_newest(self, origin: str) -> str | None:
        """Get the newest checkpoint."""
        status, raw = self._exchange("GET", f"{origin_hash(origin)}/checkpoint", None)
        if status == UNKNOWN:
            return None
        if status != DONE:
            raise _unreachable_error(self.url, f"it answers {status}")
        return raw.decode(errors="replace")

    def _exchange(self, method: str, path: str, sent: bytes | None) -> tuple[int, bytes]:
        from http.client import HTTPConnection, HTTPException, HTTPSConnection  # noqa: PLC0415 - heavy and rarely used

        try:
            parts = urlsplit(self.url)
            make = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            connection = make(parts.hostname or "", parts.port, timeout=self.seconds)
            with closing(connection), self._in_time(connection):
                connection.request(method, f"{parts.path.rstrip('/')}/{path}", sent)
                with connection.getresponse() as answer:
                    raw = answer.read(MAX_BODY + 1)
        except (OSError, HTTPException, ValueError) as problem:
            raise _unreachable_error(self.url, str(problem) or type(problem).__name__) from None
        if len(raw) > MAX_BODY:
            raise _unreachable_error(self.url, f"its answer has more than {MAX_BODY} bytes")
        return answer.status, raw

    @contextmanager
    def _in_time(self, connection: Any) -> Iterator[None]:
        """Connect, and shut the connection down after the time limit, even if data still arrives."""
        connection.connect()
        late = threading.Timer(self.seconds, _shut_down, [connection.sock])
        late.daemon = True
        late.start()
        try:
            yield
        finally:
            late.cancel()


def _shut_down(connection: Any) -> None:
    with suppress(OSError):
        connection.shutdown(2)


# --- a folder -------------------------------------------------------------------------------------------------------


@attrs.frozen
class FolderChannel:
    """A witness that watches a folder at *place*. An unanswered request stays there and is collected later."""

    place: Path
    seconds: float = SECONDS

    def ask(self, request: bytes) -> Answer:
        """Write *request* to the folder and wait for its answer; an older unanswered request is removed."""
        origin, name = Request.parse(request).checkpoint.origin, os.urandom(16).hex()
        try:
            with Folder.at(self.place) as folder:
                for older, _ in _list_requests(folder, origin):
                    _remove_request(folder, older)
                folder.replace(f"{REQUESTS}/{name}", request, mode=_READABLE)
                return self._wait(folder, name)
        except (OSError, FileRefused) as problem:
            raise _unreachable_error(str(self.place), str(problem)) from None

    def fetch_newest(self, origin: str) -> str | None:
        """Read the newest checkpoint."""
        try:
            with Folder.at(self.place) as folder:
                return folder.read(f"{CHECKPOINTS}/{origin_hash(origin)}", limit=MAX_BODY).decode(errors="replace")
        except FileNotFoundError:
            return None
        except (OSError, FileRefused) as problem:
            raise _unreachable_error(str(self.place), str(problem)) from None

    def collect(self, origin: str) -> list[tuple[Request, Answer]]:
        """Return late answers to requests of the log *origin*, and remove these requests."""
        found: list[tuple[Request, Answer]] = []
        with suppress(OSError, FileRefused), Folder.at(self.place) as folder:
            for name, request in _list_requests(folder, origin):
                if answer := _read_answer(folder, name):
                    found.append((request, answer))
                    _remove_request(folder, name)
        return found

    def _wait(self, folder: Folder, name: str) -> Answer:
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            if answer := _read_answer(folder, name):
                _remove_request(folder, name)
                return answer
            time.sleep(_POLL_SECONDS)
        raise _unreachable_error(
            str(self.place), "it has not answered yet; its answer is taken with the next checkpoint"
        )


def _list_requests(folder: Folder, origin: str) -> list[tuple[str, Request]]:
    """Return the requests of the log *origin* in a folder."""
    try:
        names = [name for name, is_folder, _ in folder.scan(REQUESTS) if not is_folder and _NAME.fullmatch(name)]
    except FileNotFoundError:
        return []
    read = [(name, request) for name in names if (request := _read_request(folder, name))]
    return [(name, request) for name, request in read if request.checkpoint.origin == origin]


def _read_request(folder: Folder, name: str) -> Request | None:
    try:
        return Request.parse(folder.read(f"{REQUESTS}/{name}", limit=MAX_BODY))
    except (OSError, DeedbookError):
        return None


def _read_answer(folder: Folder, name: str) -> Answer | None:
    try:
        return Answer.parse(folder.read(f"{ANSWERS}/{name}", limit=MAX_BODY))
    except FileNotFoundError:
        return None
    except ValueError:
        return Answer(500, "the answer cannot be read\n")


def _remove_request(folder: Folder, name: str) -> None:
    with suppress(FileNotFoundError):
        folder.remove(f"{REQUESTS}/{name}", sync=False)


def _unreachable_error(place: str, why: str) -> WitnessError:
    return WitnessError(fault("WITNESS_UNREACHABLE", f"the witness was not asked: {why}", place=place, retryable=True))
