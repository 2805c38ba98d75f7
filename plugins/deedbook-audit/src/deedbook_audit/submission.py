"""Asking a witness, as C2SP has it: over HTTP, or through a folder; whoever the witness is.

The log says from which size it proves. Where the witness knows another (409), it is proved from there; where that is
more than the log has, or the proof is refused, the witness saw another history, and that is said and never mended.
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

from deedbook.format.cosignatures import WitnessKey
from deedbook.format.errors import DeedbookError, FileRefused, SignatureError, WitnessError, fault
from deedbook.format.files import Folder
from deedbook.format.notes import Note
from deedbook.format.proofs import Checkpoint
from deedbook.format.terminal import excerpt
from deedbook.format.witness_requests import (
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
"""How long a witness may take for an answer."""
TRIES: Final = 3

_LOOK: Final = 0.05
_NAME: Final = re.compile("[0-9a-f]{32}")
_READABLE: Final = 0o644


class Channel(Protocol):
    """A way to a witness."""

    def ask(self, request: bytes) -> Answer:
        """Return the answer to *request*; raises `WitnessError` (``WITNESS_UNREACHABLE``)."""

    def newest(self, origin: str) -> str | None:
        """Return the newest note that the witness cosigned for *origin*, unchecked; raises `WitnessError`."""


class Ahead(WitnessError):  # noqa: N818 - where the witness is
    """The witness has cosigned more leaves of the log than the log has (``WITNESS_REFUSED``)."""

    def __init__(self, name: str, size: int, known: int) -> None:
        self.known = known
        why = f"it has cosigned {known} leaves of this log, which has {size}: the workspace was rolled back or forked"
        super().__init__(fault("WITNESS_REFUSED", why, place=f"witness {name}"))


@attrs.frozen
class Party:
    """A witness as a workspace names it: its *key*, and the way to it."""

    key: WitnessKey
    channel: Channel

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """Read an entry of ``checkpoints.witnesses``, its key and its folder spelled out; raises `SignatureError`."""
        url = said.get("url")
        way: Channel = Http(url) if url else Shared(Path(said["folder"]))
        return cls(WitnessKey.parse(said["key"]), way)

    def submit(self, note: str, prove: Callable[[int], Sequence[bytes]], known: int) -> Note:
        """Let the witness cosign *note*, and return it with that line added.

        *prove* gives the proof from a size to the note's; *known* is the size that the witness is believed to know.
        Raises `WitnessError`.
        """
        size = Checkpoint.parse(Note.parse(note).text).size
        for _ in range(TRIES):
            answer = self.channel.ask(body(known, prove(known), note))
            if answer.status != CONFLICT:
                return self._taken(note, answer)
            if answer.size is None:
                raise self._refused("WITNESS_INVALID", "it answers 409 without the size that it knows")
            if answer.size == known:
                raise self._refused(
                    "WITNESS_REFUSED", f"it has cosigned another tree of {known} leaves: the log forked"
                )
            if answer.size > size:
                raise Ahead(self.key.name, size, answer.size)
            known = answer.size
        raise self._refused(
            "WITNESS_UNREACHABLE", "others ask it about this log at the same time; it is asked again later"
        )

    def newest(self, origin: str) -> Note | None:
        """Return the newest checkpoint of *origin* that the witness cosigned; ``None`` if there is none.

        Raises `WitnessError`, also for a note that it did not cosign.
        """
        found = self.channel.newest(origin)
        if found is None:
            return None
        try:
            note = Note.parse(found)
            good = self.key.cosigned_at(note) is not None and Checkpoint.parse(note.text).origin == origin
        except SignatureError as problem:
            raise self._refused("WITNESS_INVALID", f"what it shows is no checkpoint: {problem.error.message}") from None
        if not good:
            raise self._refused("WITNESS_INVALID", "what it shows as its newest checkpoint is not cosigned by its key")
        return note

    def cosigned(self, note: str, lines: str) -> Note:
        """Return *note* with that of *lines* which is this witness's; raises `WitnessError` where none is."""
        try:
            mine = Note.parse(note)
            found = Note.parse(f"{mine.text}\n{lines}").signatures
        except SignatureError as problem:
            raise self._refused("WITNESS_INVALID", f"its answer is no cosignature: {problem.error.message}") from None
        own = tuple(each for each in found if (each.name, each.id) == (self.key.name, self.key.id))[:1]
        made = Note(mine.text, (*mine.signatures, *own))
        if self.key.cosigned_at(made) is None:
            raise self._refused("WITNESS_INVALID", f"its answer holds no cosignature by {self.key}")
        return made

    def _taken(self, note: str, answer: Answer) -> Note:
        said = excerpt(answer.text.partition("\n")[0])
        if answer.status == DONE:
            return self.cosigned(note, answer.text)
        if answer.status == INCONSISTENT:
            raise self._refused("WITNESS_REFUSED", f"this log does not go on from what it has cosigned: {said}")
        if answer.status in (FORBIDDEN, UNKNOWN):
            how = "where it runs, name the log's public key to it: deedbook witness trust KEY"
            raise self._refused("WITNESS_STRANGER", f"{said}; {how}")
        raise self._refused("WITNESS_UNREACHABLE", f"it answers {answer.status}: {said}")

    def _refused(self, code: str, why: str) -> WitnessError:
        return WitnessError(fault(code, why, place=f"witness {self.key.name}", retryable=code == "WITNESS_UNREACHABLE"))


# --- HTTP -------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Http:
    """A witness at a *url*, to which ``/add-checkpoint`` is added; no redirection is followed."""

    url: str
    seconds: float = SECONDS

    def ask(self, request: bytes) -> Answer:
        """Post *request*."""
        status, raw = self._exchange("POST", "add-checkpoint", request)
        try:
            return Answer(status, raw.decode())
        except UnicodeDecodeError:
            raise _unreachable(self.url, "its answer is not UTF-8") from None

    def newest(self, origin: str) -> str | None:
        """Get the newest checkpoint."""
        status, raw = self._exchange("GET", f"{origin_hash(origin)}/checkpoint", None)
        if status == UNKNOWN:
            return None
        if status != DONE:
            raise _unreachable(self.url, f"it answers {status}")
        return raw.decode(errors="replace")

    def _exchange(self, method: str, path: str, sent: bytes | None) -> tuple[int, bytes]:
        from http.client import HTTPConnection, HTTPException, HTTPSConnection  # noqa: PLC0415 - heavy, seldom used

        try:
            parts = urlsplit(self.url)
            make = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            connection = make(parts.hostname or "", parts.port, timeout=self.seconds)
            with closing(connection), self._in_time(connection):
                connection.request(method, f"{parts.path.rstrip('/')}/{path}", sent)
                with connection.getresponse() as answer:
                    raw = answer.read(MAX_BODY + 1)
        except (OSError, HTTPException, ValueError) as problem:
            raise _unreachable(self.url, str(problem) or type(problem).__name__) from None
        if len(raw) > MAX_BODY:
            raise _unreachable(self.url, f"its answer has more than {MAX_BODY} bytes")
        return answer.status, raw

    @contextmanager
    def _in_time(self, connection: Any) -> Iterator[None]:
        """Connect, and end what takes too long as a whole, though something comes now and then."""
        connection.connect()
        late = threading.Timer(self.seconds, _cut_off, [connection.sock])
        late.daemon = True
        late.start()
        try:
            yield
        finally:
            late.cancel()


def _cut_off(connection: Any) -> None:
    with suppress(OSError):
        connection.shutdown(2)


# --- a folder ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Shared:
    """A witness that watches a folder at *place*. What it has not answered in time stays, and is collected later."""

    place: Path
    seconds: float = SECONDS

    def ask(self, request: bytes) -> Answer:
        """Leave *request* there and wait for its answer; an older one that nobody answered is taken back."""
        origin, name = Request.parse(request).checkpoint.origin, os.urandom(16).hex()
        try:
            with Folder.at(self.place) as folder:
                for older, _ in _requests(folder, origin):
                    _take_back(folder, older)
                folder.replace(f"{REQUESTS}/{name}", request, mode=_READABLE)
                return self._wait(folder, name)
        except (OSError, FileRefused) as problem:
            raise _unreachable(str(self.place), str(problem)) from None

    def newest(self, origin: str) -> str | None:
        """Read the newest checkpoint."""
        try:
            with Folder.at(self.place) as folder:
                return folder.read(f"{CHECKPOINTS}/{origin_hash(origin)}", limit=MAX_BODY).decode(errors="replace")
        except FileNotFoundError:
            return None
        except (OSError, FileRefused) as problem:
            raise _unreachable(str(self.place), str(problem)) from None

    def collect(self, origin: str) -> list[tuple[Request, Answer]]:
        """Return what was answered meanwhile to requests of the log *origin*, and take these requests back."""
        found: list[tuple[Request, Answer]] = []
        with suppress(OSError, FileRefused), Folder.at(self.place) as folder:
            for name, request in _requests(folder, origin):
                if answer := _answer(folder, name):
                    found.append((request, answer))
                    _take_back(folder, name)
        return found

    def _wait(self, folder: Folder, name: str) -> Answer:
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            if answer := _answer(folder, name):
                _take_back(folder, name)
                return answer
            time.sleep(_LOOK)
        raise _unreachable(str(self.place), "it has not answered yet; its answer is taken with the next checkpoint")


def _requests(folder: Folder, origin: str) -> list[tuple[str, Request]]:
    """Return the requests of the log *origin* that stand in a folder."""
    try:
        names = [name for name, is_folder, _ in folder.scan(REQUESTS) if not is_folder and _NAME.fullmatch(name)]
    except FileNotFoundError:
        return []
    read = [(name, request) for name in names if (request := _request(folder, name))]
    return [(name, request) for name, request in read if request.checkpoint.origin == origin]


def _request(folder: Folder, name: str) -> Request | None:
    try:
        return Request.parse(folder.read(f"{REQUESTS}/{name}", limit=MAX_BODY))
    except (OSError, DeedbookError):
        return None


def _answer(folder: Folder, name: str) -> Answer | None:
    try:
        return Answer.parse(folder.read(f"{ANSWERS}/{name}", limit=MAX_BODY))
    except FileNotFoundError:
        return None
    except ValueError:
        return Answer(500, "the answer cannot be read\n")


def _take_back(folder: Folder, name: str) -> None:
    with suppress(FileNotFoundError):
        folder.remove(f"{REQUESTS}/{name}", sync=False)


def _unreachable(place: str, why: str) -> WitnessError:
    return WitnessError(fault("WITNESS_UNREACHABLE", f"the witness was not asked: {why}", place=place, retryable=True))
