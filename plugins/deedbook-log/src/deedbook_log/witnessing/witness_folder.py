"""The witness over a folder: requests as files, answers as files, for another user or a mount that both see.

``requests/<32 hex digits>`` is written by the log, ``answers/<the same>`` by the witness, each in one step; the log
takes its request away once it has the answer, and then the witness takes away the answer. What the witness knows of a
log stands in ``checkpoints/<SHA-256 of the origin>``.
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
from deedbook.format.witness_requests import (
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
"""How long the witness waits before it looks again."""
MAX_REQUESTS: Final = 256
"""So many requests are answered in one round, the first by name."""

_NAME: Final = re.compile("[0-9a-f]{32}")
_READABLE: Final = 0o644


class WitnessFolder:
    """The folder at *place*. *say* is told a line for each request."""

    def __init__(self, witness: Witness, place: Path, *, report: Callable[[str], None]) -> None:
        self._witness, self._report = witness, report
        self._folder = Folder.at(place)
        self._stuck: frozenset[str] = frozenset()

    def answer_requests(self) -> int:
        """Answer what is asked and not answered yet, and return how much that was; take away what was fetched."""
        requests, answers = set(self._list_names(REQUESTS)), set(self._list_names(ANSWERS))
        for name in answers - requests:
            with suppress(FileNotFoundError):
                self._folder.remove(f"{ANSWERS}/{name}", sync=False)
        self._stuck &= requests
        waiting = sorted(requests - answers - self._stuck)[:MAX_REQUESTS]
        for name in waiting:
            try:
                self._answer_request(name)
            except (DeedbookError, OSError) as problem:  # something else has the answer's name
                self._report(f"{name}: not answered: {short(str(problem))}")
                self._stuck |= {name}
        return len(waiting)

    def watch(self) -> Iterator[int]:
        """Answer for ever; yield after each round how much was asked."""
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
        except FileNotFoundError:  # taken back meanwhile
            return
        except (DeedbookError, OSError):
            body, answer = b"", Answer(BAD, f"a file of at most {MAX_BODY} bytes is expected\n")
        if answer.status == DONE:
            self._publish(Request.parse(body).checkpoint.origin)
        self._folder.replace(f"{ANSWERS}/{name}", bytes(answer), mode=_READABLE)
        first = answer.text.partition("\n")[0] if answer.status != DONE else ""
        self._report(f"{name}: {answer.status} {short(first)}".rstrip())

    def _publish(self, origin: str) -> None:
        """Let whoever verifies read what was cosigned last."""
        note = self._witness.find_newest(origin_hash(origin))
        if note is not None:
            self._folder.replace(f"{CHECKPOINTS}/{origin_hash(origin)}", str(note).encode(), mode=_READABLE)
