"""Compares a fork with its parent's ledger: the line that it continues from, and the outcomes that it served.

It knows only the format; `fork_rules` checks the fork's own file.
"""

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.format.canonical import decode
from deedbook.format.errors import DeedbookError
from deedbook.format.events import ALIASES, MAX_PAYLOAD, Line, split_line
from deedbook.format.families import OUTCOMES
from deedbook.format.files import Folder
from deedbook.format.heads import Gap
from deedbook.format.lines import Lines

_LONGEST: Final = MAX_PAYLOAD + 1024
_FIRST: Final = 16
"""The number of first lines that are searched for ``session.forked``: it comes before the session's first hook."""
_HIDDEN: Final = (b'"$sealed"', b'"$excised"')
_CLAIMS: Final[Mapping[str, tuple[str, ...]]] = {
    "session.forked": (),
    "call.served": (),
    "approval.served": ("approval.granted", "approval.served"),
}
"""Events that claim something about a line of the parent, and the types of event that they may claim."""
_ENDS: Final = frozenset(end for ends in OUTCOMES.values() for end in ends)


@attrs.frozen
class _Claim:
    """A fork's claim about one line of its parent: its number, its hash, and the outcome (*line*) that repeats it.

    *types* are the types of event that the parent may have there; any, if it is empty.
    """

    seq: int
    hash: str
    line: Line | None = None
    types: tuple[str, ...] = ()


@attrs.define
class _ServedCalls:
    """The calls of a fork that a person had approved in the parent: each has a recorded outcome, and no other."""

    _approvals: set[str] = attrs.field(factory=set)
    _calls: set[str] = attrs.field(factory=set)
    own: dict[str, int] = attrs.field(factory=dict)

    def take(self, line: Line, payload: Any) -> None:
        """Take the next line; *own* then has the outcomes, by span, that are not the parent's."""
        kind, above = _get_kind(line), line.parent_span_id or ""
        if kind == "approval.served":
            self._approvals.add(line.span_id)
        elif kind in OUTCOMES and kind != "flow.call" and above in self._approvals:
            self._calls.add(line.span_id)
        elif above in self._calls and kind in _ENDS:
            if payload.get("outcome") != "unknown":
                self.own[line.span_id] = line.seq
        elif kind == "call.served":
            self.own.pop(above, None)


def compare_fork(place: Path, find: Callable[[str], Path | None]) -> list[Gap]:
    """Compare the ledger at *place* with its parent's, and return the gaps.

    *find* returns the path of a session's ledger, or ``None`` if it is not available; then nothing is compared. Sealed
    values are not compared. For a ledger that is no fork only its first lines are read.
    """
    if not any(line.event_type == "session.forked" for line in islice(_read(place), _FIRST)):
        return []
    session, parent, claims, own = _read_claims(place)
    wanted = "the outcome that the parent recorded, since the fork only served its approval"
    gaps = [Gap(session, "fork", wanted, f"one of its own, in event {seq}") for seq in own]
    above = find(parent)
    if above is None or not above.exists():
        return gaps
    return [*gaps, *_compare_claims(session, parent, above, claims)]


def _read_claims(place: Path) -> tuple[str, str, list[_Claim], list[int]]:
    """Return the claims of a ledger: its id, its parent, and the claims about the parent's lines.

    The last ones are the numbers of the outcomes that had to be the parent's, and are not.
    """
    session, parent, before = "", "", None
    claims, served = list[_Claim](), _ServedCalls()
    for line in _read(place):
        session = session or line.session_id
        try:
            payload: Any = decode(line.payload)
        except ValueError:  # the ledger's own verification says so
            continue
        served.take(line, payload)
        if line.event_type in _CLAIMS:
            who, seq, own = payload.get("session"), payload.get("seq"), payload.get("hash")
            if isinstance(who, str) and isinstance(seq, int) and isinstance(own, str):  # else it is sealed, or gone
                parent = parent or who
                repeats = before if line.event_type == "call.served" else None
                claims.append(_Claim(seq, own, repeats, _CLAIMS[line.event_type]))
        before = line
    return session, parent, claims, list(served.own.values())


def _compare_claims(session: str, parent: str, place: Path, claims: list[_Claim]) -> Iterator[Gap]:
    left = {claim.seq for claim in claims}
    found = {line.seq: line for line in _read(place) if line.seq in left}
    for claim in claims:
        line = found.get(claim.seq)
        where = f"event {claim.seq} of session {parent}"
        if line is None or line.session_id != parent:
            yield Gap(session, "fork", f"{where}, with the hash {claim.hash}", "no such event")
        elif line.envelope_hash != claim.hash or sha256(line.header).hexdigest() != claim.hash:
            yield Gap(session, "fork", f"{where}, with the hash {claim.hash}", line.envelope_hash)
        elif claim.types and line.event_type not in claim.types:
            yield Gap(session, "fork", f"{where}, an approval", line.event_type)
        elif claim.line is not None and not _is_same(line, claim.line):
            yield Gap(session, "fork", f"the outcome of {where}", f"another one, in event {claim.line.seq}")


def _is_same(recorded: Line, served: Line) -> bool:
    """Return whether an outcome equals the recorded one, as far as both are readable."""
    if _get_kind(recorded) != _get_kind(served):
        return False
    hidden = any(mark in each.payload for mark in _HIDDEN for each in (recorded, served))
    return hidden or recorded.payload_hash == served.payload_hash


def _get_kind(line: Line) -> str:
    return ALIASES.get(line.event_type, line.event_type)


def _read(place: Path) -> Iterator[Line]:
    """Yield the lines up to the first invalid one, which the ledger's own verification reports."""
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        for raw in Lines(file, _LONGEST):
            try:
                yield split_line(raw)
            except DeedbookError:
                return
