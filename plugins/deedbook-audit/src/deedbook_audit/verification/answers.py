"""Compares the answers of people in sessions with the workspace ledger, where the answers are recorded.

Each ledger is sound by itself. So an answer in a session that the workspace ledger lacks was forged.
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
from deedbook_audit.approval_rules import ANSWERS

_OURS: Final = b',"event_type":"approval.'
_FAR: Final = 400
_SAME: Final = ("approval", "approver", "signed")


@attrs.frozen
class _SessionAnswer:
    """An answer that *session* took over with an event of the type *kind* and its *payload*."""

    session: str
    kind: str
    payload: Mapping[str, Any]


def compare_answers(state: Path, sessions: Collection[str]) -> Iterator[Gap]:
    """Yield each answer in *sessions* that differs from the workspace ledger of *state*.

    Sealed values are not compared. An unreadable ledger is skipped: its own verification reports it.
    """
    answers = [each for name in sessions for each in _read_session_answers(state / "sessions" / name, name)]
    with suppress(DeedbookError, OSError):
        found = _read_workspace_answers(
            state / "workspace", {each.payload["seq"] for each in answers}
        )  # the workspace ledger is written before the sessions
        for each in answers:
            where = f"the answer at event {each.payload['seq']} of {each.payload['ledger']}"
            for why in _compare(each, found.get(each.payload["seq"])):
                yield Gap(each.session, each.kind, where, why)


def _read_session_answers(place: Path, session: str) -> Iterator[_SessionAnswer]:
    with suppress(DeedbookError, OSError, ValueError):
        for _, line in _lines(place):
            if line.event_type in ANSWERS:
                payload = decode(line.payload)
                if isinstance(payload.get("seq"), int) and all(isinstance(payload.get(name), str) for name in _PLACE):
                    yield _SessionAnswer(session, line.event_type, payload)


_PLACE: Final = ("ledger", "hash")
"""Members that are no text if they are sealed; then the answer's position is unknown."""


def _read_workspace_answers(place: Path, wanted: set[int]) -> dict[int, Line]:
    """Return the events about approvals with the numbers *wanted*; empty if the ledger is missing."""
    if not wanted:
        return {}
    try:
        return {seq: line for seq, line in _lines(place) if seq in wanted}
    except FileNotFoundError:
        return {}


def _lines(place: Path) -> Iterator[tuple[int, Line]]:
    """Yield the number and the parts of each line about an approval; raises like `split_line`."""
    with Folder.at(place) as folder, folder.open(LEDGER_FILE) as file:
        for seq, raw in enumerate(Lines(file, MAX_LINE)):
            if _OURS in raw[:_FAR]:
                yield seq, split_line(raw, place=f"{place / LEDGER_FILE}:{seq + 1}")


def _compare(answer: _SessionAnswer, line: Line | None) -> Iterator[str]:
    if line is None or line.event_type != "approval.answered" or line.session_id != answer.payload["ledger"]:
        yield "no answer"
        return
    if line.envelope_hash != answer.payload["hash"]:
        yield f"one with the hash {line.envelope_hash}, not {answer.payload['hash']}"
    try:
        recorded = decode(line.payload)
    except ValueError:  # the ledger's own verification reports it
        return
    word = recorded.get("answer")
    if isinstance(word, str) and word != ANSWERS[answer.kind]:
        yield f"the answer {word!r}"
    for name in _SAME:
        mine, theirs = answer.payload.get(name), recorded.get(name)
        if isinstance(mine, str) and isinstance(theirs, str) and mine != theirs:
            yield f"another {name}"
