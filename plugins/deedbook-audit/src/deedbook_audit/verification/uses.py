"""Compares the approvals that sessions used with the workspace ledger: each was answered, and used once.

A session alone shows a valid signature even if another session has used it before.
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


class _ApprovedCall(NamedTuple):
    """A call that a session made under an approval."""

    session: str
    approval: str


@attrs.define
class _WorkspaceUses:
    """The uses in the workspace ledger: the approval of each answer's span, and the users of each approval."""

    approvals: dict[str, str] = attrs.field(factory=dict)
    uses: dict[str, list[str]] = attrs.field(factory=dict)


def compare_uses(state: Path, sessions: Collection[str]) -> Iterator[Gap]:
    """Yield each use of an approval in *sessions* of a *state* folder that the workspace ledger does not have.

    Sealed values are not compared; the session of an excised use is unknown. An unreadable ledger is skipped: its own
    verification reports it.
    """
    acts = [act for name in sessions if SESSION_ID.fullmatch(name) for act in _read_calls(state / "sessions" / name)]
    recorded = _read_workspace(state / "workspace")  # after the sessions: it is written first
    for approval, users in recorded.uses.items():
        if len(users) > 1:
            yield Gap(users[-1] or "unknown", f"approval {approval}", "used once", f"{len(users)} times")
    for act in acts:
        users = recorded.uses.get(act.approval, [])
        user = next((each for each in (act.session, _ANYBODY) if each in users), None)
        if user is None:
            yield Gap(act.session, f"approval {act.approval}", "an approval.used by this session", _by(users))
        else:
            users.remove(user)


def _by(users: Collection[str]) -> str:
    return f"one by {', '.join(users)}" if users else "none that is left"


def _read_calls(place: Path) -> Iterator[_ApprovedCall]:
    granted: dict[str, Any] = {}
    for line in _lines(place, lambda raw: bool(granted) or _GRANTED in raw[:_HEADER]):
        kind = ALIASES.get(line.event_type, line.event_type)
        if kind == "approval.granted":
            granted[line.span_id] = decode(line.payload)
        elif kind in OUTCOMES and line.parent_span_id in granted:
            grant = granted[line.parent_span_id]
            if isinstance(grant.get("approval"), str):
                yield _ApprovedCall(place.name, grant["approval"])


def _read_workspace(place: Path) -> _WorkspaceUses:
    recorded = _WorkspaceUses()
    for line in _lines(place, lambda raw: _FAMILY in raw[:_HEADER]):
        _apply(line, recorded)
    return recorded


def _apply(line: Line, recorded: _WorkspaceUses) -> None:
    payload: Any = decode(line.payload)
    if line.event_type == "approval.answered":
        if isinstance(payload.get("approval"), str):
            recorded.approvals[line.span_id] = payload["approval"]
    elif line.event_type == "approval.used":
        approval, session = recorded.approvals.get(line.parent_span_id or ""), payload.get("session", _ANYBODY)
        if approval is not None:
            recorded.uses.setdefault(approval, []).append(session if isinstance(session, str) else _ANYBODY)


def _lines(place: Path, wanted: Callable[[bytes], bool]) -> Iterator[Line]:
    """Yield the *wanted* lines of a ledger, up to the first invalid one."""
    with suppress(DeedbookError, OSError), Folder.at(place) as folder, folder.open(LEDGER_FILE) as file:
        for raw in Lines(file, _LONGEST):
            if wanted(raw):
                line = split_line(raw)
                if line.sound or line.payload.startswith(_GONE):  # else the ledger's own verification reports it
                    yield line
