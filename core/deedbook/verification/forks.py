"""What a forked session says of its parent, held against the parent's file: the line it goes on from, what was served.

It knows the format and neither who forked nor who writes.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.canonical import decode
from deedbook.errors import DeedbookError
from deedbook.events import ALIASES, MAX_PAYLOAD, OUTCOMES, Line, split_line
from deedbook.files import Folder

from .heads import Gap
from .lines import Lines

_LONGEST: Final = MAX_PAYLOAD + 1024
_ENDS: Final = frozenset(outcome for outcomes in OUTCOMES.values() for outcome in outcomes)
_HIDDEN: Final = (b'"$sealed"', b'"$excised"')


@attrs.frozen
class _Claim:
    """What a fork says of one line of its parent: its number, its hash, and the outcome (*line*) that it stands for."""

    seq: int
    hash: str
    line: Line | None = None


def forks(place: Path, find: Callable[[str], Path | None]) -> tuple[list[Gap], list[str]]:
    """Check what the ledger at *place* says of a parent, and return what is wrong, and notes.

    *find* returns where the ledger of a session is, ``None`` if it is not at hand. A ledger that is no fork has neither
    gaps nor notes. What is sealed is not compared.
    """
    session, parents, claims, gaps = _claims(place)
    if not parents:
        return gaps, []
    parent = parents[0]
    above = find(parent)
    if above is None or not above.exists():
        return gaps, [f"forked from session {parent}, whose ledger is not at hand: what was served was not compared"]
    gaps += _compared(session, parent, above, claims)
    return gaps, [] if gaps else [f"forked from session {parent}: the line and {len(claims) - 1} outcomes are its own"]


def _claims(place: Path) -> tuple[str, list[str], list[_Claim], list[Gap]]:
    """Read what a ledger claims: its id, the parents that it names, and of which lines it says what."""
    session, root, before = "", "", None
    parents: list[str] = []
    claims: list[_Claim] = []
    gaps: list[Gap] = []
    for line in _read(place):
        session, root = session or line.session_id, root or line.span_id
        if line.event_type in ("session.forked", "call.served"):
            said: Any = decode(line.payload)
            parent, seq, own = said.get("session"), said.get("seq"), said.get("hash")
            if not isinstance(parent, str) or not isinstance(seq, int) or not isinstance(own, str):
                continue  # sealed, or not what its schema says
            if line.event_type == "session.forked":
                parents.append(parent)
                gaps += _misplaced(line, root, len(parents))
            elif before is None or before.span_id != line.parent_span_id or before.event_type not in _ENDS:
                gaps.append(Gap(session, "fork", "call.served under the outcome before it", f"event {line.seq}"))
            elif parents[:1] != [parent]:
                gaps.append(Gap(session, "fork", "what is served is the parent's", f"event {line.seq}: {parent[:64]}"))
            claims.append(_Claim(seq, own, before if line.event_type == "call.served" else None))
        before = line
    return session, parents, claims, gaps


def _misplaced(line: Line, root: str, count: int) -> Iterator[Gap]:
    if count > 1 or line.parent_span_id != root:
        yield Gap(line.session_id, "fork", "one session.forked, under session.start", f"event {line.seq}")


def _compared(session: str, parent: str, place: Path, claims: list[_Claim]) -> Iterator[Gap]:
    left = {claim.seq for claim in claims}
    found = {line.seq: line for line in _read(place) if line.seq in left}
    for claim in claims:
        line = found.get(claim.seq)
        where = f"event {claim.seq} of session {parent}"
        if line is None or line.session_id != parent:
            yield Gap(session, "fork", f"{where}, with the hash {claim.hash}", "no such event")
        elif line.envelope_hash != claim.hash or sha256(line.header).hexdigest() != claim.hash:
            yield Gap(session, "fork", f"{where}, with the hash {claim.hash}", line.envelope_hash)
        elif claim.line is not None and not _is_same(line, claim.line):
            yield Gap(session, "fork", f"the outcome of {where}", f"another one, in event {claim.line.seq}")


def _is_same(recorded: Line, served: Line) -> bool:
    """Say whether an outcome is the one that was recorded, as far as both can be read."""
    if _kind(recorded) != _kind(served):
        return False
    hidden = any(mark in each.payload for mark in _HIDDEN for each in (recorded, served))
    return hidden or recorded.payload_hash == served.payload_hash


def _kind(line: Line) -> str:
    return ALIASES.get(line.event_type, line.event_type)


def _read(place: Path) -> Iterator[Line]:
    """Yield the lines that can be taken apart; of the others the ledger's own verification says what is wrong."""
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        for raw in Lines(file, _LONGEST):
            try:
                yield split_line(raw)
            except DeedbookError:
                return
