"""What memory rests on, held against the ledgers of the sessions that it names.

A proposal names the call that made it and, where it has provenance, its check names an event: both have to stand in the
files of their sessions and say the same. What is sealed or taken out on either side is not compared, and a file that
cannot be read is passed over: its own verification says what is wrong with it.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.format.canonical import decode, encode
from deedbook.format.errors import DeedbookError
from deedbook.format.events import EXCISED_KEY, MAX_PAYLOAD, SESSION_ID, Line, split_line
from deedbook.format.files import Folder
from deedbook.format.heads import Gap
from deedbook.format.lines import Lines
from deedbook.format.paths import LEDGER_FILE
from deedbook.policy.conditions import ABSENT, lookup

_LONGEST: Final = MAX_PAYLOAD + 1024
_HEADER: Final = 1024
_FAMILY: Final = b'"event_type":"memory.'
_HIDDEN: Final = (b'"$sealed"', b'"$excised"')
_KINDS: Final[Mapping[str, str]] = {
    "user_declared": "user.message",
    "tool_verified": "tool.result",
    "human_approved": "approval.granted",
}
"""What kind of event each kind of provenance rests on."""


@attrs.define
class _Claim:
    """What was committed: the proposal, and the event that its check names, if it names one.

    *said* is empty where the proposal was taken out or sealed; *bare* says whether the check, as it stands, names none.
    """

    said: Mapping[str, Any]
    name: str = ""
    source: Mapping[str, Any] | None = None
    bare: bool = False
    world: bool = False

    def tells(self, sessions: Collection[str]) -> bool:
        """Say whether it was proposed in one of *sessions*, as far as that is known."""
        return self.said.get("session") in (None, *sessions)


def recollections(state: Path, sessions: Collection[str]) -> Iterator[Gap]:
    """Yield where what is remembered rests on something else than the ledgers of *sessions* have.

    A session of a *state* folder is looked at if it is one of *sessions*, whether it proposed, or is what something
    rests on.
    """
    claims = _claims(state / "workspace")
    wanted: dict[str, tuple[set[str], set[int]]] = {}
    for claim in claims:
        for name, span, seq in _named(claim):
            if isinstance(name, str) and SESSION_ID.fullmatch(name) and name in sessions:
                spans, seqs = wanted.setdefault(name, (set(), set()))
                spans.add(span)
                seqs.update(seq)
    files = {name: _read(state / "sessions" / name, *what) for name, what in wanted.items()}
    for claim in claims:
        if claim.world and claim.bare and claim.tells(sessions):
            where = claim.said.get("session", "the workspace ledger")
            yield Gap(where, f"proposal {claim.name}", "an event that world state rests on", "none")
        proposer = files.get(claim.said["session"]) if claim.said else None
        if proposer is not None:
            yield from _proposed(claim, proposer)
        source = files.get(claim.source["session"]) if claim.source else None
        if source is not None:
            yield from _rests(claim, source)


def _named(claim: _Claim) -> Iterator[tuple[Any, str, tuple[int, ...]]]:
    """Yield the events that a claim names: session, span, and where one stands if that is said."""
    if claim.said:
        yield claim.said["session"], claim.said["span"], ()
    if claim.source:
        yield claim.source["session"], claim.source["span"], (claim.source["seq"],)


class _Session:
    """Those lines of a session that something names, by place and by span, and the persona that it is bound to."""

    def __init__(self, name: str, lines: list[Line]) -> None:
        self.name = name
        self.lines = {line.seq: line for line in lines}
        self.spans = {line.span_id: line for line in lines}
        bound = [line for line in lines if line.event_type == "persona.bound" and not _hides(line)]
        self.persona = decode(bound[0].payload)["persona"] if bound else None

    def gap(self, what: str, expected: str, found: str) -> Gap:
        """Return a gap of this session."""
        return Gap(self.name, what, expected, found)


def _proposed(claim: _Claim, session: _Session) -> Iterator[Gap]:
    """Hold a proposal against the call that it says it is."""
    said = claim.said
    proposal = f"proposal {said['proposal']}"
    intent = session.spans.get(said["span"])
    if intent is None or intent.event_type != "memory.call":
        found = intent.event_type if intent else "none"
        yield session.gap(proposal, f"the memory.call {said['span']} that it names", found)
        return
    if said["persona"] != session.persona:
        yield session.gap(proposal, f"persona {said['persona']}", f"a session of {session.persona}")
    who = said["by"]["id"] if isinstance(said["by"], dict) else None
    if isinstance(who, str) and intent.principal != who:
        yield session.gap(proposal, f"a call of {who}", f"one of {intent.principal}")
    entry = said["entry"]
    if _hides(intent) or _is_hidden(entry) or said.get("withheld"):
        return
    args = decode(intent.payload)["args"]
    for part in ("zone", "key", "value", "provenance"):
        if encode([args.get(part, None)]) != encode([entry.get(part, None)]):
            yield session.gap(proposal, f"the {part} of its call", "another")


def _rests(claim: _Claim, session: _Session) -> Iterator[Gap]:
    """Hold the event that something rests on against what the file has there."""
    assert claim.source
    said, source = claim.said, claim.source
    entry: Any = said.get("entry")
    proposal = f"proposal {claim.name}"
    seq = source["seq"]
    line = session.lines.get(seq)
    if line is None or (line.envelope_hash, line.span_id) != (source["hash"], source["span"]):
        yield session.gap(proposal, f"event {seq} with the hash that it rests on", "another" if line else "none")
        return
    if said and said["persona"] != session.persona:
        yield session.gap(proposal, f"persona {said['persona']}", f"a session of {session.persona}")
    grounds = entry.get("provenance") if isinstance(entry, dict) else None
    if not isinstance(grounds, dict) or "kind" not in grounds:
        return
    wanted = _KINDS.get(grounds["kind"], "")
    if line.event_type != wanted:
        yield session.gap(proposal, f"{wanted} as {grounds['kind']}", line.event_type)
    elif wanted == "approval.granted":
        intent = session.spans.get(said["span"])
        if intent is None or intent.parent_span_id != line.span_id:
            yield session.gap(proposal, "the approval under which its call stands", "another")
    elif wanted == "user.message" and isinstance(said["by"], dict) and line.principal != said["by"].get("id"):
        yield session.gap(proposal, f"a message of {said['by'].get('id')}", f"one of {line.principal}")
    elif wanted == "tool.result" and not _hides(line) and not _is_hidden(entry):
        found = lookup(f"/result{grounds.get('pointer', '')}")(decode(line.payload))
        if found is ABSENT or encode([found]) != encode([entry["value"]]):
            yield session.gap(proposal, "the value in the result that it rests on", "another")


def _read(place: Path, spans: set[str], seqs: set[int]) -> _Session | None:
    named = re.compile(b'"span_id":"(?:%b)"|"event_type":"persona.bound"' % "|".join(map(re.escape, spans)).encode())
    with (
        suppress(DeedbookError, OSError, ValueError, KeyError),
        Folder.at(place) as folder,
        folder.open(LEDGER_FILE) as file,
    ):
        raws = enumerate(Lines(file, _LONGEST))
        return _Session(
            place.name, [split_line(raw) for seq, raw in raws if seq in seqs or named.search(raw, 0, _HEADER)]
        )
    return None


def _claims(place: Path) -> list[_Claim]:
    """Return what was committed, as the workspace ledger has it."""
    open_claims: dict[str | None, _Claim] = {}
    committed: list[_Claim] = []
    with suppress(DeedbookError, OSError), Folder.at(place) as folder, folder.open(LEDGER_FILE) as file:
        for raw in Lines(file, _LONGEST):
            if _FAMILY in raw:
                with suppress(DeedbookError, ValueError, KeyError, TypeError):
                    _take(split_line(raw), open_claims, committed)
    return committed


def _take(line: Line, claims: dict[str | None, _Claim], committed: list[_Claim]) -> None:
    """Take in a line; *claims* are those still open, by the span of their last event, which headers keep."""
    said: Any = decode(line.payload)
    if line.event_type == "memory.proposed":
        whole = _texts(said, "session", "span", "proposal") and {"by", "entry", "persona"} <= said.keys()
        claims[line.span_id] = _Claim(said if whole else {}, said["proposal"] if whole else f"of {line.span_id}")
    elif line.event_type == "memory.checked":
        claim = claims[line.span_id] = claims.pop(line.parent_span_id)
        source = said.get("source")
        claim.bare = source is None and EXCISED_KEY not in said
        if isinstance(source, dict) and _texts(source, "session", "span", "hash") and type(source["seq"]) is int:
            claim.source = source
    elif line.event_type == "memory.committed":
        claim = claims.pop(line.parent_span_id)
        claim.world = said.get("zone") == "world_state"
        committed.append(claim)


def _texts(said: Mapping[str, Any], *parts: str) -> bool:
    """Say whether these parts are there and are not sealed."""
    return all(isinstance(said.get(part), str) for part in parts)


def _hides(line: Line) -> bool:
    """Say whether something of a payload is sealed, or it was taken out."""
    return any(mark in line.payload for mark in _HIDDEN)


def _is_hidden(value: Any) -> bool:
    raw = encode([value], 96)
    return any(mark in raw for mark in _HIDDEN)
