"""Compares the sources of memory with the ledgers of the sessions that they name.

A proposal and a retraction name the call that made them, and a check names an event if the entry has provenance: these
have to be in the files of their sessions with the same content. Sealed and excised values are not compared. An
unreadable file is skipped: its own verification reports it.
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

_MAX_LINE: Final = MAX_PAYLOAD + 1024
_HEADER: Final = 1024
_FAMILY: Final = b'"event_type":"memory.'
_HIDDEN: Final = (b'"$sealed"', b'"$excised"')
_SOURCE_TYPES: Final[Mapping[str, str]] = {
    "user_declared": "user.message",
    "tool_verified": "tool.result",
    "human_approved": "approval.granted",
}
"""The type of event that each kind of provenance refers to."""


@attrs.define
class _Claim:
    """A committed entry: its proposal, and the event that its check names, if any.

    *proposal* is empty if it was excised or sealed; *has_no_source*: the check names no event; *is_world_state*: the
    zone is world state.
    """

    proposal: Mapping[str, Any]
    name: str = ""
    source: Mapping[str, Any] | None = None
    has_no_source: bool = False
    is_world_state: bool = False

    def is_proposed_in(self, sessions: Collection[str]) -> bool:
        """Return whether it was proposed in one of *sessions*, or its session is unknown."""
        return self.proposal.get("session") in (None, *sessions)


def compare_memory_sources(state: Path, sessions: Collection[str]) -> Iterator[Gap]:
    """Yield each memory entry whose source differs from the ledgers of *sessions*.

    A session of a *state* folder is read if it is one of *sessions* and has made a proposal or is the source of an
    entry.
    """
    claims, retracted = _read_claims(state / "workspace")
    wanted: dict[str, tuple[set[str], set[int]]] = {}
    named = [each for claim in claims for each in _list_events(claim)]
    named += [(each["session"], each["span"], ()) for each in retracted]
    for name, span, seq in named:
        if isinstance(name, str) and SESSION_ID.fullmatch(name) and name in sessions:
            spans, seqs = wanted.setdefault(name, (set(), set()))
            spans.add(span)
            seqs.update(seq)
    files = {name: _read_session(state / "sessions" / name, *what) for name, what in wanted.items()}
    for claim in claims:
        if claim.is_world_state and claim.has_no_source and claim.is_proposed_in(sessions):
            where = claim.proposal.get("session", "the workspace ledger")
            yield Gap(where, f"proposal {claim.name}", "an event that world state rests on", "none")
        proposer = files.get(claim.proposal["session"]) if claim.proposal else None
        if proposer is not None:
            yield from _check_proposal(claim, proposer)
        source = files.get(claim.source["session"]) if claim.source else None
        if source is not None:
            yield from _check_source(claim, source)
    for each in retracted:
        caller = files.get(each["session"])
        if caller is not None:
            yield from _check_retraction(each, caller)


def _list_events(claim: _Claim) -> Iterator[tuple[Any, str, tuple[int, ...]]]:
    """Yield the events that a claim names: session, span, and position if it is given."""
    if claim.proposal:
        yield claim.proposal["session"], claim.proposal["span"], ()
    if claim.source:
        yield claim.source["session"], claim.source["span"], (claim.source["seq"],)


class _Session:
    """The lines of a session that a claim names, by position and by span, and the session's persona."""

    def __init__(self, name: str, lines: list[Line]) -> None:
        self.name = name
        self.lines = {line.seq: line for line in lines}
        self.spans = {line.span_id: line for line in lines}
        bound = [line for line in lines if line.event_type == "persona.bound" and not _has_hidden_parts(line)]
        self.persona = decode(bound[0].payload)["persona"] if bound else None

    def gap(self, what: str, expected: str, found: str) -> Gap:
        """Return a gap of this session."""
        return Gap(self.name, what, expected, found)


def _check_proposal(claim: _Claim, session: _Session) -> Iterator[Gap]:
    """Compare a proposal with the call that it names."""
    proposed = claim.proposal
    proposal = f"proposal {proposed['proposal']}"
    yield from _check_caller(proposal, proposed, session)
    intent, entry = _find_call(proposed, session), proposed["entry"]
    if intent is None or _has_hidden_parts(intent) or _is_hidden(entry) or proposed.get("withheld"):
        return
    args = decode(intent.payload)["args"]
    for part in ("zone", "key", "value", "provenance"):
        if encode([args.get(part, None)]) != encode([entry.get(part, None)]):
            yield session.gap(proposal, f"the {part} of its call", "another")


def _find_call(said: Mapping[str, Any], session: _Session) -> Line | None:
    """Return the call that an event names."""
    intent = session.spans.get(said["span"])
    return intent if intent is not None and intent.event_type == "memory.call" else None


def _check_caller(what: str, said: Mapping[str, Any], session: _Session) -> Iterator[Gap]:
    """Compare who made a change, as the event about it says, with the call that it names."""
    intent = _find_call(said, session)
    if intent is None:
        other = session.spans.get(said["span"])
        yield session.gap(what, f"the memory.call {said['span']} that it names", other.event_type if other else "none")
        return
    if said["persona"] != session.persona:
        yield session.gap(what, f"persona {said['persona']}", f"a session of {session.persona}")
    who = said["by"]["id"] if isinstance(said["by"], dict) else None
    if isinstance(who, str) and intent.principal != who:
        yield session.gap(what, f"a call of {who}", f"one of {intent.principal}")


def _check_retraction(said: Mapping[str, Any], session: _Session) -> Iterator[Gap]:
    """Compare a retraction with the call that it names."""
    what = f"retraction of {said.get('zone')}/{said.get('key')}"
    yield from _check_caller(what, said, session)
    intent = _find_call(said, session)
    if intent is None or _has_hidden_parts(intent) or _is_hidden(dict(said)):
        return
    args = decode(intent.payload)["args"]
    for part in ("zone", "key", "reason"):
        if encode([args.get(part)]) != encode([said.get(part)]):
            yield session.gap(what, f"the {part} of its call", "another")


def _check_source(claim: _Claim, session: _Session) -> Iterator[Gap]:
    """Compare the source of an entry with the line in the session's file."""
    assert claim.source
    proposed, source = claim.proposal, claim.source
    entry: Any = proposed.get("entry")
    proposal = f"proposal {claim.name}"
    seq = source["seq"]
    line = session.lines.get(seq)
    if line is None or (line.envelope_hash, line.span_id) != (source["hash"], source["span"]):
        yield session.gap(proposal, f"event {seq} with the hash that it rests on", "another" if line else "none")
        return
    if proposed and proposed["persona"] != session.persona:
        yield session.gap(proposal, f"persona {proposed['persona']}", f"a session of {session.persona}")
    grounds = entry.get("provenance") if isinstance(entry, dict) else None
    if not isinstance(grounds, dict) or "kind" not in grounds:
        return
    wanted = _SOURCE_TYPES.get(grounds["kind"], "")
    if line.event_type != wanted:
        yield session.gap(proposal, f"{wanted} as {grounds['kind']}", line.event_type)
    elif wanted == "approval.granted":
        intent = session.spans.get(proposed["span"])
        if intent is None or intent.parent_span_id != line.span_id:
            yield session.gap(proposal, "the approval under which its call stands", "another")
    elif wanted == "user.message" and isinstance(proposed["by"], dict) and line.principal != proposed["by"].get("id"):
        yield session.gap(proposal, f"a message of {proposed['by'].get('id')}", f"one of {line.principal}")
    elif wanted == "tool.result" and not _has_hidden_parts(line) and not _is_hidden(entry):
        found = lookup(f"/result{grounds.get('pointer', '')}")(decode(line.payload))
        if found is ABSENT or encode([found]) != encode([entry["value"]]):
            yield session.gap(proposal, "the value in the result that it rests on", "another")


def _read_session(place: Path, spans: set[str], seqs: set[int]) -> _Session | None:
    named = re.compile(b'"span_id":"(?:%b)"|"event_type":"persona.bound"' % "|".join(map(re.escape, spans)).encode())
    with (
        suppress(DeedbookError, OSError, ValueError, KeyError),
        Folder.at(place) as folder,
        folder.open(LEDGER_FILE) as file,
    ):
        raws = enumerate(Lines(file, _MAX_LINE))
        return _Session(
            place.name, [split_line(raw) for seq, raw in raws if seq in seqs or named.search(raw, 0, _HEADER)]
        )
    return None


def _read_claims(place: Path) -> tuple[list[_Claim], list[Mapping[str, Any]]]:
    """Return the committed entries of the workspace ledger, and the retractions."""
    open_claims: dict[str | None, _Claim] = {}
    committed: list[_Claim] = []
    retracted: list[Mapping[str, Any]] = []
    with suppress(DeedbookError, OSError), Folder.at(place) as folder, folder.open(LEDGER_FILE) as file:
        for raw in Lines(file, _MAX_LINE):
            if _FAMILY in raw:
                with suppress(DeedbookError, ValueError, KeyError, TypeError):
                    line = split_line(raw)
                    if line.event_type == "memory.retracted":
                        retracted.extend(_read_retraction(decode(line.payload)))
                    else:
                        _apply(line, open_claims, committed)
    return committed, retracted


def _read_retraction(payload: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the payload of a retraction, if it names its call."""
    if _has_texts(payload, "session", "span") and {"by", "persona"} <= payload.keys():
        yield payload


def _apply(line: Line, claims: dict[str | None, _Claim], committed: list[_Claim]) -> None:
    """Apply a line; *claims* are the open ones, by the span of their last event, which excised lines keep."""
    payload: Any = decode(line.payload)
    if line.event_type == "memory.proposed":
        whole = _has_texts(payload, "session", "span", "proposal") and {"by", "entry", "persona"} <= payload.keys()
        claims[line.span_id] = _Claim(payload if whole else {}, payload["proposal"] if whole else f"of {line.span_id}")
    elif line.event_type == "memory.checked":
        claim = claims[line.span_id] = claims.pop(line.parent_span_id)
        source = payload.get("source")
        claim.has_no_source = source is None and EXCISED_KEY not in payload
        if isinstance(source, dict) and _has_texts(source, "session", "span", "hash") and type(source["seq"]) is int:
            claim.source = source
    elif line.event_type == "memory.committed":
        claim = claims.pop(line.parent_span_id)
        claim.is_world_state = payload.get("zone") == "world_state"
        committed.append(claim)


def _has_texts(payload: Mapping[str, Any], *parts: str) -> bool:
    """Return whether all *parts* are present and not sealed."""
    return all(isinstance(payload.get(part), str) for part in parts)


def _has_hidden_parts(line: Line) -> bool:
    """Return whether a payload has sealed parts or was excised."""
    return any(mark in line.payload for mark in _HIDDEN)


def _is_hidden(value: Any) -> bool:
    raw = encode([value], 96)
    return any(mark in raw for mark in _HIDDEN)
