"""What the workspace ledger knows of each session, held against the session's file: cut ends and lost files show here.

A file alone cannot tell that its last lines, or all of it, were taken away.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import attrs

from deedbook.contracts import Event
from deedbook.declarations import Workspace
from deedbook.errors import DeedbookError
from deedbook.events import MAX_PAYLOAD, SESSION_ID, split_line
from deedbook.files import Folder
from deedbook.lines import Lines
from deedbook.reader import read

from .ledgers import ledger_of, own

MAX_LINE: Final = MAX_PAYLOAD + 1024


@attrs.frozen
class Head:
    """A session as the workspace ledger last recorded it: so many *events*, the hash *head* of the last of them."""

    session: str
    events: int
    head: str
    state: str


@attrs.frozen
class Gap:
    """What is *expected* of a session's file by its recorded head, and what was *found* instead."""

    session: str
    check: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"session {self.session}: {self.check}: expected {self.expected}, found {self.found}"


def recorded(workspace: Workspace) -> Mapping[str, Head]:
    """Return the last head of every session that the workspace ledger knows, as far as it can be read."""
    heads: dict[str, Head] = {}
    with suppress(FileNotFoundError, DeedbookError):  # its own verification says what is wrong with it
        for head in map(_head, read(own(workspace))):
            if head:
                heads[head.session] = head
    return heads


def gaps(workspace: Workspace, heads: Mapping[str, Head]) -> Iterator[Gap]:
    """Yield every session whose file does not hold what its head commits to."""
    for head in heads.values():
        try:
            hash_, events = _line(ledger_of(workspace, head.session), head.events)
        except FileNotFoundError:
            yield Gap(head.session, "file", f"a ledger of {head.events} events, {head.state}", "none")
            continue
        except (DeedbookError, OSError):
            continue  # its own verification says what is wrong with it
        if hash_ is None:
            yield Gap(head.session, "events", f"at least {head.events}", str(events))
        elif hash_ != head.head:
            yield Gap(head.session, f"envelope_hash of line {head.events}", head.head, hash_)


def _head(event: Event) -> Head | None:
    """Return the head that *event* records; ``None`` if it is of another kind, or not what was written."""
    told = event.payload
    session, events = told.get("session_id"), told.get("events")
    if event.type != "ledger.session" or not isinstance(session, str) or not SESSION_ID.fullmatch(session):
        return None
    return Head(session, events, str(told.get("head")), str(told.get("state"))) if type(events) is int else None


def _line(place: Path, number: int) -> tuple[str | None, int]:
    """Return the hash of line *number* of a ledger, and how many lines it has up to there; no hash if it has fewer."""
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        seen = deque(enumerate(islice(Lines(file, MAX_LINE), number), 1), maxlen=1)
    count, last = seen.pop() if seen else (0, b"")
    return (split_line(last).envelope_hash if count == number else None), count
