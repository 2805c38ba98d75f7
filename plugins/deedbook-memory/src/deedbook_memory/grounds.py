"""Checks the grounds of a proposal in the ledgers: the event that its provenance names exists and supports it.

A session's ledger is read from its file, every line is checked, and every recorded head is compared: an unrecorded or
changed event proves nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from deedbook.contract import Object
from deedbook.format.canonical import decode
from deedbook.format.errors import DeedbookError
from deedbook.format.events import SESSION_ID, Line, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import Follower
from deedbook.format.sealed import open_values
from deedbook.policy.conditions import ABSENT, glob_test, lookup
from deedbook.policy.requests import answer_faults, approvers, call_digest

from .entries import same

_HEAD: Final = b'"event_type":"ledger.session"'
_AGENT: Final = "agent:"
_EXTERNAL: Final = ["tool", "elsewhere"]


class UnprovenError(Exception):
    """The grounds of a proposal do not hold; the message says why."""


class Source(NamedTuple):
    """The source event of a proposal, and its session."""

    session: str
    line: Line

    def as_json(self) -> dict[str, Any]:
        """Return it in the form of ``memory.checked``."""
        line = self.line
        stands = {"seq": line.seq, "span": line.span_id, "hash": line.envelope_hash, "type": line.event_type}
        return {"session": self.session, **stands}


@attrs.frozen(kw_only=True)
class Claim:
    """A proposal to check: its session, its call, its principal, and its value.

    *raw* are the arguments' canonical bytes, *call* the span of the intent, *actor* the class of the caller.
    """

    session: str
    call: str
    ability: str
    raw: bytes
    principal: str
    actor: str
    persona: str | None
    value: Any


class GroundsChecker:
    """Checks claims in the *state* folder, under the charter *document*."""

    def __init__(self, state: Path, document: Object, verified_by: Sequence[str]) -> None:
        self._state = state
        self._principals: Mapping[str, Any] = document["principals"]
        self._abilities: Mapping[str, Any] = document["abilities"]
        self._fits = glob_test(list(verified_by))

    def check(self, provenance: Object, claim: Claim) -> Source:
        """Return the event that *provenance* names; raises `UnprovenError`."""
        try:
            how = {
                "user_declared": self._find_message,
                "tool_verified": self._find_tool_result,
                "human_approved": self._find_approval,
            }
            source = how[provenance["kind"]](provenance, claim)
        except (DeedbookError, OSError, LookupError, TypeError, ValueError) as problem:
            raise UnprovenError(f"its grounds cannot be read: {problem}") from None
        return source

    def _find_message(self, provenance: Object, claim: Claim) -> Source:
        """Find a person's own message; the proposal has to come from that person directly."""
        if claim.actor != "user" or claim.principal.startswith(_AGENT):
            raise UnprovenError(f"only a person declares; this was asked by {claim.actor} {claim.principal}")
        session = _get_text(provenance, "session")
        line = self._find_line(session, claim, "span", _get_text(provenance, "span"))
        if provenance.get("hash", line.envelope_hash) != line.envelope_hash:
            raise UnprovenError("the event that it names has another hash")
        if line.event_type != "user.message":
            raise UnprovenError(f"the event that it names is {line.event_type}, and no message of a person")
        if line.principal != claim.principal:
            raise UnprovenError(f"the message that it names is of {line.principal}, not of {claim.principal}")
        return Source(session, line)

    def _find_tool_result(self, provenance: Object, claim: Claim) -> Source:
        """Find a tool result that holds the value at the pointer, of a tool whose results count as proof."""
        session, pointer = _get_text(provenance, "session"), provenance.get("pointer", "")
        line = self._find_line(session, claim, "seq", provenance["seq"])
        if line.envelope_hash != _get_text(provenance, "hash"):
            raise UnprovenError("the event that it names has another hash")
        if line.event_type != "tool.result":
            raise UnprovenError(f"the event that it names is {line.event_type}, and no result of a tool")
        payload = self._open_payload(session, line)
        tool = payload["tool_name"]
        declared = self._abilities.get(tool)
        if declared is None or not self._fits(tool):
            raise UnprovenError(f"results of {tool} prove nothing here; memory.verified_by names the tools whose do")
        if declared["plugin"] == _EXTERNAL:
            raise UnprovenError(f"{tool} is the agent's own tool: what it gave is what the agent says")
        found = lookup(f"/result{pointer}")(payload)
        if found is ABSENT or not same(found, claim.value):
            raise UnprovenError(f"the result that it names does not hold the value at {pointer or 'its root'!r}")
        return Source(session, line)

    def _find_approval(self, _: Object, claim: Claim) -> Source:
        """Find the approval of exactly this call, under which it runs."""
        asked_or_called = ("memory.call", "approval.requested", "approval.granted")
        found = self._read_lines(claim.session, claim.persona, lambda line: line.event_type in asked_or_called)
        lines = {line.span_id: line for line in found}
        granted = lines.get(lines[claim.call].parent_span_id or "")
        request = lines.get((granted.parent_span_id if granted else None) or "")
        if granted is None or request is None or granted.event_type != "approval.granted":
            raise UnprovenError("this proposal was not approved; let a policy answer ask, so that a person decides")
        request_payload, answer = self._open_payload(claim.session, request), self._open_payload(claim.session, granted)
        if request_payload["call"] != call_digest(claim.ability, claim.raw, claim.principal):
            raise UnprovenError("what was approved is another proposal")
        key = approvers(self._principals).get(answer["approver"])
        word = {"answer": "approve", "approver": answer["approver"], "signed": answer["signed"]}
        for why in answer_faults(request_payload, word, key, answer["ledger"]):
            raise UnprovenError(f"the approval does not count: {why}")
        return Source(claim.session, granted)

    # --- ledgers -----------------------------------------------------------------------------------------------------

    def _find_line(self, session: str, claim: Claim, by: str, wanted: object) -> Line:
        found = self._read_lines(
            session, claim.persona, lambda line: (line.span_id if by == "span" else line.seq) == wanted
        )
        if found:
            return found[0]
        raise UnprovenError(f"session {session} has no event with {by} {str(wanted)[:40]}")

    def _read_lines(self, session: str, persona: str | None, wanted: Callable[[Line], bool]) -> list[Line]:
        """Return the *wanted* lines of a session of the same persona, after checking all lines and recorded heads."""
        if not SESSION_ID.fullmatch(session):
            raise UnprovenError("it names no session")
        heads = dict(_read_heads(self._state, session))
        if not heads:
            raise UnprovenError(f"the workspace ledger knows no session {session}")
        try:
            folder = Folder.at(self._state / "sessions" / session)
        except FileNotFoundError:
            raise UnprovenError(f"session {session} has no ledger") from None
        with (
            folder,
            closing(Follower(folder.open(LEDGER_FILE), place=f"{folder.path}/{LEDGER_FILE}", gaps=True)) as follow,
        ):
            return _select_lines(follow(), session, heads, persona, wanted)

    def _open_payload(self, session: str, line: Line) -> dict[str, Any]:
        try:
            with Folder.at(self._state / "sessions" / session) as folder:
                found: dict[str, Any] = open_values(folder, decode(line.payload))
        except FileNotFoundError:
            raise UnprovenError("a value that it rests on was erased") from None
        return found


def _select_lines(
    lines: Iterable[Line], session: str, heads: dict[int, str], persona: str | None, wanted: Callable[[Line], bool]
) -> list[Line]:
    """Read a session's lines to the end and return the *wanted* ones; raises `UnprovenError`."""
    selected, bound = [], None
    for number, line in enumerate(lines):
        if line.session_id != session or line.seq != number:
            raise UnprovenError(f"the ledger of session {session} holds another session")
        if heads.pop(number + 1, line.envelope_hash) != line.envelope_hash:
            heads[0] = ""
        if line.event_type == "persona.bound" and bound is None:
            bound = decode(line.payload)["persona"]
        if wanted(line):
            selected.append(line)
    if heads:
        raise UnprovenError(f"the ledger of session {session} is not what the workspace ledger recorded of it")
    if bound != persona:
        raise UnprovenError(f"session {session} is of another persona")
    return selected


def _read_heads(state: Path, session: str) -> Iterator[tuple[int, str]]:
    """Yield the recorded heads of a session: the number of its events, and the hash of the last."""
    name = session.encode()
    with Folder.at(state / "workspace") as folder, folder.open(LEDGER_FILE) as file:
        for raw in file:
            if _HEAD in raw and name in raw and raw.endswith(b"}\n"):
                payload = decode(split_line(raw).payload)
                if payload["session_id"] == session:
                    yield payload["events"], payload["head"]


def _get_text(provenance: Object, member: str) -> str:
    found = provenance.get(member)
    if not isinstance(found, str):
        raise UnprovenError(f"its provenance has no {member}")
    return found
