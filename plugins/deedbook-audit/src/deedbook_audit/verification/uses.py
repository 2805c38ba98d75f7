"""Approvals that sessions acted on, held against the workspace ledger: each was answered there, and used there once.

A session by itself shows a signature that holds, also where another one has acted on it before.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from deedbook.format.canonical import decode
from deedbook.format.errors import DeedbookError
from deedbook.format.events import ALIASES, MAX_PAYLOAD, SESSION_ID, Line, split_line
from deedbook.format.families import OUTCOMES
from deedbook.format.files import Folder
from deedbook.format.heads import Gap
from deedbook.format.lines import Lines
from deedbook.format.paths import LEDGER_FILE

_LONGEST: Final = MAX_PAYLOAD + 1024
_HEADER: Final = 512
_FAMILY: Final = b'"event_type":"approval.'
_GRANTED: Final = b'"event_type":"approval.granted"'
_ANYBODY: Final = ""
_GONE: Final = b'{"$excised":"'


class _Act(NamedTuple):
    """A call that a session made under an approval."""

    session: str
    approval: str


@attrs.define
class _Told:
    """What the workspace ledger says: which approval an answer's span is about, and who used each."""

    approvals: dict[str, str] = attrs.field(factory=dict)
    uses: dict[str, list[str]] = attrs.field(factory=dict)


def misused(state: Path, sessions: Collection[str]) -> Iterator[Gap]:
    """Yield where *sessions* of a *state* folder acted on approvals that they did not have, or no more.

    What is sealed is not compared; of a use that was taken out of its line, nobody can tell by which session it was.
    What cannot be read is passed over: its own verification says what is wrong with it.
    """
    acts = [act for name in sessions if SESSION_ID.fullmatch(name) for act in _acts(state / "sessions" / name)]
    told = _told(state / "workspace")  # after the sessions: it is written first
    for approval, users in told.uses.items():
        if len(users) > 1:
            yield Gap(users[-1] or "unknown", f"approval {approval}", "used once", f"{len(users)} times")
    for act in acts:
        users = told.uses.get(act.approval, [])
        user = next((each for each in (act.session, _ANYBODY) if each in users), None)
        if user is None:
            yield Gap(act.session, f"approval {act.approval}", "an approval.used by this session", _by(users))
        else:
            users.remove(user)


def _by(users: Collection[str]) -> str:
    return f"one by {', '.join(users)}" if users else "none that is left"


def _acts(place: Path) -> Iterator[_Act]:
    granted: dict[str, Any] = {}
    for line in _lines(place, lambda raw: bool(granted) or _GRANTED in raw[:_HEADER]):
        kind = ALIASES.get(line.event_type, line.event_type)
        if kind == "approval.granted":
            granted[line.span_id] = decode(line.payload)
        elif kind in OUTCOMES and line.parent_span_id in granted:
            told = granted[line.parent_span_id]
            if isinstance(told.get("approval"), str):
                yield _Act(place.name, told["approval"])


def _told(place: Path) -> _Told:
    told = _Told()
    for line in _lines(place, lambda raw: _FAMILY in raw[:_HEADER]):
        _take(line, told)
    return told


def _take(line: Line, told: _Told) -> None:
    said: Any = decode(line.payload)
    if line.event_type == "approval.answered":
        if isinstance(said.get("approval"), str):
            told.approvals[line.span_id] = said["approval"]
    elif line.event_type == "approval.used":
        approval, session = told.approvals.get(line.parent_span_id or ""), said.get("session", _ANYBODY)
        if approval is not None:
            told.uses.setdefault(approval, []).append(session if isinstance(session, str) else _ANYBODY)


def _lines(place: Path, wanted: Callable[[bytes], bool]) -> Iterator[Line]:
    """Yield the lines of a ledger that are *wanted*, up to the first that is none of the format."""
    with suppress(DeedbookError, OSError), Folder.at(place) as folder, folder.open(LEDGER_FILE) as file:
        for raw in Lines(file, _LONGEST):
            if wanted(raw):
                line = split_line(raw)
                if line.sound or line.payload.startswith(_GONE):  # else the ledger's own verification says it
                    yield line
