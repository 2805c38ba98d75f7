"""What sessions say of answers that people gave, held against the workspace ledger, where the answers stand.

Each ledger is sound by itself. So an answer that a session acted on and that nobody gave there was made up.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.format.canonical import decode
from deedbook.format.errors import DeedbookError
from deedbook.format.events import Line, split_line
from deedbook.format.files import Folder
from deedbook.format.heads import MAX_LINE, Gap
from deedbook.format.lines import Lines
from deedbook.format.paths import LEDGER_FILE
from deedbook_audit.consents import ANSWERS

_OURS: Final = b',"event_type":"approval.'
_FAR: Final = 400
_SAME: Final = ("approval", "approver", "signed")


@attrs.frozen
class _Taken:
    """An answer that *session* took over by an event of the type *kind*, as that event *said* it."""

    session: str
    kind: str
    said: Mapping[str, Any]


def misquoted(state: Path, sessions: Collection[str]) -> Iterator[Gap]:
    """Yield where an answer that one of *sessions* acted on is not what stands in the workspace ledger of *state*.

    What is sealed is not compared. What cannot be read is passed over: its own verification says what is wrong with it.
    """
    taken = [each for name in sessions for each in _taken(state / "sessions" / name, name)]
    with suppress(DeedbookError, OSError):
        found = _standing(state / "workspace", {each.said["seq"] for each in taken})  # it is written before them
        for each in taken:
            where = f"the answer at event {each.said['seq']} of {each.said['ledger']}"
            for why in _compared(each, found.get(each.said["seq"])):
                yield Gap(each.session, each.kind, where, why)


def _taken(place: Path, session: str) -> Iterator[_Taken]:
    with suppress(DeedbookError, OSError, ValueError):
        for _, line in _lines(place):
            if line.event_type in ANSWERS:
                said = decode(line.payload)
                if isinstance(said.get("seq"), int) and all(isinstance(said.get(name), str) for name in _PLACE):
                    yield _Taken(session, line.event_type, said)


_PLACE: Final = ("ledger", "hash")
"""What is no text where it is sealed; then nobody can say where the answer stands."""


def _standing(place: Path, wanted: set[int]) -> dict[int, Line]:
    """Return the events about approvals with the numbers *wanted*; of a ledger that is gone, none."""
    if not wanted:
        return {}
    try:
        return {seq: line for seq, line in _lines(place) if seq in wanted}
    except FileNotFoundError:
        return {}


def _lines(place: Path) -> Iterator[tuple[int, Line]]:
    """Yield the number and the parts of each line that is about an approval; raises as `split_line` does."""
    with Folder.at(place) as folder, folder.open(LEDGER_FILE) as file:
        for seq, raw in enumerate(Lines(file, MAX_LINE)):
            if _OURS in raw[:_FAR]:
                yield seq, split_line(raw, place=f"{place / LEDGER_FILE}:{seq + 1}")


def _compared(taken: _Taken, line: Line | None) -> Iterator[str]:
    if line is None or line.event_type != "approval.answered" or line.session_id != taken.said["ledger"]:
        yield "no answer"
        return
    if line.envelope_hash != taken.said["hash"]:
        yield f"one with the hash {line.envelope_hash}, not {taken.said['hash']}"
    try:
        told = decode(line.payload)
    except ValueError:  # the ledger's own verification says so
        return
    word = told.get("answer")
    if isinstance(word, str) and word != ANSWERS[taken.kind]:
        yield f"the answer {word!r}"
    for name in _SAME:
        mine, theirs = taken.said.get(name), told.get(name)
        if isinstance(mine, str) and isinstance(theirs, str) and mine != theirs:
            yield f"another {name}"
