"""The witness over a folder: requests and answers are files, for another user or a shared mount.

The log writes ``requests/<32 hex digits>``, the witness ``answers/<the same>``, each atomically; the log removes its
request once it has the answer, and then the witness removes the answer. The newest checkpoint that the witness cosigned
of a log is in ``checkpoints/<SHA-256 of the origin>``.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.terminal import short
from deedbook_audit.transparency.witness_requests import (
    ANSWERS,
    BAD,
    CHECKPOINTS,
    DONE,
    MAX_BODY,
    REQUESTS,
    Answer,
    Request,
    origin_hash,
)

from .witness import Witness

POLL_SECONDS: Final = 0.2
"""Seconds between two looks at the folder."""
MAX_REQUESTS: Final = 256
"""The largest number of requests answered in one round, in the order of their names."""

_NAME: Final = re.compile("[0-9a-f]{32}")
_READABLE: Final = 0o644


class WitnessFolder:
    """The folder at *place*. *report* receives a line for each request."""

    def __init__(self, witness: Witness, place: Path, *, report: Callable[[str], None]) -> None:
        self._witness, self._report = witness, report
        self._folder = Folder.at(place)
        self._stuck: frozenset[str] = frozenset()

    def answer_requests(self) -> int:
        """Answer all open requests, and return their number; remove the answers that were fetched."""
        requests, answers = set(self._list_names(REQUESTS)), set(self._list_names(ANSWERS))
        for name in answers - requests:
            with suppress(FileNotFoundError):
                self._folder.remove(f"{ANSWERS}/{name}", sync=False)
        self._stuck &= requests
        waiting = sorted(requests - answers - self._stuck)[:MAX_REQUESTS]
        for name in waiting:
            try:
                self._answer_request(name)
            except (DeedbookError, OSError) as problem:  # another kind of file has the answer's name
                self._report(f"{name}: not answered: {short(str(problem))}")
                self._stuck |= {name}
        return len(waiting)

    def watch(self) -> Iterator[int]:
        """Answer forever; yield the number of requests after each round."""
        while True:
            yield self.answer_requests()
            time.sleep(POLL_SECONDS)

    def _list_names(self, folder: str) -> Iterator[str]:
        with suppress(FileNotFoundError):
            for name, is_folder, _ in self._folder.scan(folder):
                if not is_folder and _NAME.fullmatch(name):
                    yield name

    def _answer_request(self, name: str) -> None:
        try:
            body = self._folder.read(f"{REQUESTS}/{name}", limit=MAX_BODY)
            answer = self._witness.add(body)
        except FileNotFoundError:  # the log has removed its request
            return
        except (DeedbookError, OSError):
            body, answer = b"", Answer(BAD, f"a file of at most {MAX_BODY} bytes is expected\n")
        if answer.status == DONE:
            self._publish(Request.parse(body).checkpoint.origin)
        self._folder.replace(f"{ANSWERS}/{name}", bytes(answer), mode=_READABLE)
        first = answer.text.partition("\n")[0] if answer.status != DONE else ""
        self._report(f"{name}: {answer.status} {short(first)}".rstrip())

    def _publish(self, origin: str) -> None:
        """Publish the newest cosigned checkpoint for verifiers."""
        note = self._witness.find_newest(origin_hash(origin))
        if note is not None:
            self._folder.replace(f"{CHECKPOINTS}/{origin_hash(origin)}", str(note).encode(), mode=_READABLE)
