"""Compare what the workspace ledger recorded of each session with the session's file: cuts and lost files show.

A file alone cannot show that its last lines, or all of it, were removed.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import attrs

from deedbook.contract import Event

from .canonical import MAX_INTEGER
from .events import MAX_PAYLOAD, SESSION_ID, split_line
from .files import Folder
from .lines import Lines
from .paths import LEDGER_FILE
from .reader import read

MAX_LINE: Final = MAX_PAYLOAD + 1024
_BEGINNING: Final = frozenset({"session.start", "persona.bound", "approval.resumed", "hook.fired", "session.end"})
"""Events of a session that died before its first head was recorded, or that a hook refused."""


_WORKSPACE: Final = "ws-"
"""The prefix of ids of workspace ledgers, which have leaves like sessions, and no file among them."""


@attrs.frozen
class Head:
    """A head of a session in the workspace ledger: its number of *events*, and the hash *head* of the last of them.

    *trace* comes from its run, empty if none is recorded.
    """

    session: str
    events: int
    head: str
    state: str
    trace: str = ""


@attrs.frozen
class Gap:
    """A difference between a recorded head (*expected*) and a session's file (*found*)."""

    session: str
    check: str
    expected: str
    found: str

    @property
    def subject(self) -> str:
        """The subject of the gap: a session, the workspace ledger, or another name."""
        if " " in self.session:  # no id of a session
            return self.session
        return "the workspace ledger" if self.session == "workspace" else f"session {self.session}"

    @property
    def absent(self) -> bool:
        """Whether something is missing; otherwise it exists and differs."""
        return self.found == "none" or self.check == "events"

    def __str__(self) -> str:
        return f"{self.subject}: {self.check}: expected {self.expected}, found {self.found}"


def list_heads(state: Path) -> Iterator[Head]:
    """Yield every head in the workspace ledger of a *state* folder, in order; none if there is no such ledger.

    Raises `LedgerError` if it cannot be read; heads that were yielded before are valid.
    """
    traces: dict[str, str] = {}
    with suppress(FileNotFoundError):
        for event in read(state / "workspace"):
            if event.type == "system.run":
                traces.update(_trace(event))
            elif head := _head(event):
                yield attrs.evolve(head, trace=traces.get(head.session, ""))


def find_gaps(state: Path, heads: Sequence[Head]) -> Iterator[Gap]:
    """Yield everything that the file of a session lacks of its *heads*, which are in order; raises as `read` does.

    Every head counts, not only the newest: a head that was recorded after a cut does not hide an older one.
    """
    if not heads:
        return
    session, most = heads[-1].session, max(head.events for head in heads)
    try:
        events, hashes, trace = _hashes(state / "sessions" / session, {head.events for head in heads})
    except FileNotFoundError:
        yield missing_file(heads)
        return
    if events < most:
        yield Gap(session, "events", f"at least {most}", str(events))
    for expected in {head.trace for head in heads if head.trace and trace} - {trace}:
        yield Gap(session, "trace_id", expected, trace)
    for number, expected in dict.fromkeys((head.events, head.head) for head in heads):
        if hashes.get(number, expected) != expected:
            yield Gap(session, f"envelope_hash of line {number}", expected, hashes[number])


def missing_file(heads: Sequence[Head]) -> Gap:
    """Return the gap of a session with *heads* and no file."""
    most = max(head.events for head in heads)
    return Gap(heads[-1].session, "file", f"a ledger of {most} events, {heads[-1].state}", "none")


def find_unrecorded(state: Path, session: str) -> Gap | None:
    """Return the gap of a *session* with events but without a head in the workspace ledger; raises as `read`.

    A head is recorded before a session acts, so it is searched after the session's events were read.
    """
    if all(event.type in _BEGINNING for event in read(state / "sessions" / session)):
        return None
    if any(head.session == session for head in list_heads(state)):
        return None
    return Gap(session, "head", "a record of the session in the workspace ledger", "none")


def _head(event: Event) -> Head | None:
    """Return the head that *event* records; ``None`` for other types or an invalid payload."""
    payload, is_leaf = event.payload, event.type == "ledger.leaf"
    session, events, head = payload.get("session_id"), payload.get("size" if is_leaf else "events"), payload.get("head")
    if not (is_leaf or event.type == "ledger.session") or not isinstance(session, str):
        return None
    if not SESSION_ID.fullmatch(session) or session.startswith(_WORKSPACE):
        return None
    if type(events) is not int or not 1 <= events <= MAX_INTEGER or not isinstance(head, str):
        return None
    return Head(session, events, head, "in a checkpoint" if is_leaf else str(payload.get("state")))


def _trace(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the session and its trace that a run names; nothing if they are sealed or invalid."""
    session, trace = event.payload.get("session_id"), event.payload.get("trace_id")
    if isinstance(session, str) and isinstance(trace, str):
        yield session, trace


def _hashes(place: Path, wanted: AbstractSet[int]) -> tuple[int, dict[int, str], str]:
    """Return the number of lines of the ledger in *place*, up to the last *wanted*, their hashes, and its trace."""
    count, hashes, trace = 0, {}, ""
    with Folder.at(place) as folder, folder.open(LEDGER_FILE) as file:
        for count, line in enumerate(islice(Lines(file, MAX_LINE), max(wanted)), 1):
            if count in wanted:
                found = split_line(line, place=f"{place / LEDGER_FILE}:{count}")
                hashes[count], trace = found.envelope_hash, found.trace_id
    return count, hashes, trace
