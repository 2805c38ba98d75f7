"""What a forked session says of its parent, held against the parent's file: the line it goes on from, what was served.

It knows the format and neither who forked nor who writes; what a fork's own file has to be is checked by `descent`.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.format.canonical import decode
from deedbook.format.errors import DeedbookError
from deedbook.format.events import ALIASES, MAX_PAYLOAD, Line, split_line
from deedbook.format.files import Folder
from deedbook.format.heads import Gap
from deedbook.format.lines import Lines

_LONGEST: Final = MAX_PAYLOAD + 1024
_FIRST: Final = 16
"""Lines among which a fork says that it is one: it comes before the session's first hook."""
_HIDDEN: Final = (b'"$sealed"', b'"$excised"')


@attrs.frozen
class _Claim:
    """What a fork says of one line of its parent: its number, its hash, and the outcome (*line*) that it stands for."""

    seq: int
    hash: str
    line: Line | None = None


def forks(place: Path, find: Callable[[str], Path | None]) -> list[Gap]:
    """Hold what the ledger at *place* says of a parent against that, and return what is wrong.

    *find* returns where the ledger of a session is; ``None``: it is not at hand, and nothing is compared. Nor is what
    is sealed. A ledger that is no fork costs the reading of its first lines.
    """
    if not any(line.event_type == "session.forked" for line in islice(_read(place), _FIRST)):
        return []
    session, parent, claims = _claims(place)
    above = find(parent)
    if above is None or not above.exists():
        return []
    return list(_compared(session, parent, above, claims))


def _claims(place: Path) -> tuple[str, str, list[_Claim]]:
    """Read what a ledger claims: its id, its parent, and of which lines of that it says what."""
    session, parent, before = "", "", None
    claims: list[_Claim] = []
    for line in _read(place):
        session = session or line.session_id
        if line.event_type in ("session.forked", "call.served"):
            try:
                said: Any = decode(line.payload)
            except ValueError:  # the ledger's own verification says so
                continue
            who, seq, own = said.get("session"), said.get("seq"), said.get("hash")
            if isinstance(who, str) and isinstance(seq, int) and isinstance(own, str):  # else it is sealed, or gone
                parent = parent or who
                claims.append(_Claim(seq, own, before if line.event_type == "call.served" else None))
        before = line
    return session, parent, claims


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
